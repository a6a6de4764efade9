"""Reads the user's command from the command line of a parent process, because git tells a remote helper too little.

At `list` a helper cannot tell `ls-remote` from `fetch`, nor one branch from all. This is a hint and nothing more: a
wrong or missing one costs bytes or a round trip, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import msgspec

ANCESTORS = 8
"""The most processes above the helper that are read: `git submodule update` is five deep."""

_VALUED = {
    "global": "-C -c --git-dir --work-tree --namespace --exec-path --config-env",
    "clone": "--branch -b --config -c --depth --filter --jobs -j --origin -o --reference --reference-if-able "
    "--separate-git-dir --server-option --shallow-exclude --shallow-since --template --upload-pack -u "
    "--bundle-uri",
    "fetch": "--deepen --depth --filter --jobs -j --negotiation-tip --refmap --server-option -o --shallow-exclude "
    "--shallow-since --upload-pack --recurse-submodules-default --submodule-prefix",
    "push": "--repo --receive-pack --exec --push-option -o",
}

TAKES_VALUE = {command: frozenset(options.split()) for command, options in _VALUED.items()}
"""Options whose value is the next word, by command."""

LEASE = "--force-with-lease"

READ = {
    "clone": frozenset({"--mirror", "--no-tags", "--single-branch", "--no-single-branch"}),
    "fetch": frozenset({"--all", "--multiple", "--tags", "--no-tags", "--no-all", "--no-multiple"}),
    "push": frozenset(
        {
            *("--all", "--branches", "--delete", "--follow-tags", "--force", "--mirror", "--prune", LEASE),
            *("--no-follow-tags", "--no-force-with-lease"),
        }
    ),
}
"""By command, the long options without a value that are read, and options with which their shortened names could be
confused."""

KNOWN = frozenset({"clone", "fetch", "ls-remote", "push", "remote"})
"""Commands that give a hint; `pull` and `submodule` run one of these."""


class Hint(msgspec.Struct, frozen=True):
    """A git command: its name (empty if unknown), its options without values, and its other words."""

    command: str = ""
    options: frozenset[str] = frozenset()
    values: Mapping[str, str] = msgspec.field(default_factory=dict)
    words: tuple[str, ...] = ()
    leases: tuple[str, ...] = ()
    """The values of `--force-with-lease`, in order: `REF:ID`, `REF`, or an empty string for all refs."""

    @property
    def refs_only(self) -> bool:
        """True if the command reads only refs."""
        return self.command in ("ls-remote", "remote")

    @property
    def is_lazy(self) -> bool:
        """True if git itself requests objects that a partial clone lacks. It then names their ids, and needs no ref."""
        named = {"--stdin", "--no-tags", "--no-write-fetch-head", "--filter"}
        return self.command == "fetch" and named <= self.options

    @property
    def refspecs(self) -> tuple[str, ...]:
        """The words after the repository on the command line."""
        return self.words[1:]

    @property
    def forces(self) -> bool:
        """True if every ref is forced, whatever its lease."""
        return bool(self.options & {"--force", "-f", "--mirror"})


def parse(command_line: Sequence[str]) -> Hint:
    """Return the hint in a command line. It is empty if the command is not git's, or is not in `KNOWN`."""
    words = list(command_line)
    if not words or not words[0].rpartition("/")[2].startswith("git"):
        return Hint()
    name = words.pop(0).rpartition("/")[2]
    if name.startswith("git-"):
        words.insert(0, name[4:])
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in TAKES_VALUE["global"] and words:
            words.pop(0)
    command = words.pop(0) if words else ""
    if command not in KNOWN:
        return Hint()
    found = _Words(words, TAKES_VALUE.get(command, frozenset()), READ.get(command, frozenset()))
    return Hint(command, frozenset(found.options), found.values, tuple(found.rest), tuple(found.leases))


class _Words:
    """The words after the command, parsed as git's own parser does."""

    def __init__(self, words: list[str], valued: Set[str], read: Set[str]) -> None:
        self.options: set[str] = set()
        self.values: dict[str, str] = {}
        self.rest: list[str] = []
        self.leases: list[str] = []
        self._words = words
        self._valued = valued
        self._read = read
        while words:
            word = words.pop(0)
            if word == "--":
                self.rest += words
                break
            if word.startswith("--"):
                self._long(word)
            elif word.startswith("-") and word != "-":
                self._short(word[1:])
            else:
                self.rest.append(word)

    def _long(self, word: str) -> None:
        option, equals, value = word.partition("=")
        if option not in self._read and option not in self._valued:
            # Git takes any unique beginning of a name; with another option of that beginning it would not run.
            option = next((name for name in self._read | self._valued if name.startswith(option)), option)
        self.options.add(option)
        if option == LEASE:
            self.leases.append(value)
        elif option == "--no-" + LEASE[2:]:
            self.leases.clear()
        elif equals:
            self.values[option] = value
        elif option in self._valued and self._words:
            self.values[option] = self._words.pop(0)

    def _short(self, letters: str) -> None:
        for position, letter in enumerate(letters, 1):
            option = f"-{letter}"
            self.options.add(option)
            if option in self._valued:
                value = letters[position:] or (self._words.pop(0) if self._words else "")
                self.values[option] = value
                return


def read(command_line_of: Callable[[int], tuple[int, Sequence[str]] | None], process: int) -> Hint:
    """Return the hint of the nearest process above that is a known git command.

    `command_line_of` returns a process's parent and command line, or None if they cannot be read.
    """
    for _ in range(ANCESTORS):
        found = command_line_of(process)
        if found is None:
            break
        parent, words = found
        hint = parse(words)
        if hint.command:
            return hint
        process = parent
    return Hint()


def proc_command_line(process: int) -> tuple[int, list[str]] | None:
    """Return a process's parent and command line from /proc, or None if they cannot be read."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            words = [word.decode("utf-8", "surrogateescape") for word in file.read().split(b"\0")[:-1]]
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1]), words
    except (OSError, ValueError, IndexError):
        return None


def ps_command_line(process: int) -> tuple[int, list[str]] | None:
    """Return a process's parent and command line from `ps`, for systems without /proc. A word with spaces is split into
    several, which a hint tolerates."""
    import subprocess

    try:
        done = subprocess.run(
            ["ps", "-o", "ppid=,args=", "-p", str(process)], capture_output=True, text=True, check=False
        )
        parent, *words = done.stdout.split()
        return int(parent), words
    except (OSError, ValueError):
        return None
