"""What the user asked git for, read off the parent's command line: git tells a remote helper too little.

At `list` a helper cannot tell `ls-remote` from `fetch`, nor one branch from all. This is a hint and nothing more: a
wrong or missing one costs bytes or a round trip, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

ANCESTORS = 8
"""Processes above the helper that are looked at: `git submodule update` is five deep."""

TAKES_VALUE = {
    "global": frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"}),
    "clone": frozenset(
        [
            "--branch",
            "-b",
            "--config",
            "-c",
            "--depth",
            "--filter",
            "--jobs",
            "-j",
            "--origin",
            "-o",
            "--reference",
            "--reference-if-able",
            "--separate-git-dir",
            "--server-option",
            "--shallow-exclude",
            "--shallow-since",
            "--template",
            "--upload-pack",
            "-u",
            "--bundle-uri",
        ]
    ),
    "fetch": frozenset(
        [
            "--deepen",
            "--depth",
            "--filter",
            "--jobs",
            "-j",
            "--negotiation-tip",
            "--refmap",
            "--server-option",
            "-o",
            "--shallow-exclude",
            "--shallow-since",
            "--upload-pack",
            "--recurse-submodules-default",
            "--submodule-prefix",
        ]
    ),
    "push": frozenset(["--repo", "--receive-pack", "--exec", "--push-option", "-o"]),
}
"""Options whose value is the next word."""

KNOWN = frozenset({"clone", "fetch", "ls-remote", "push", "remote"})
"""Commands a hint is made of; `pull` and `submodule` run one of these."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A git command: its name (empty: unknown), its options without values, and its other words."""

    command: str = ""
    options: frozenset[str] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    @property
    def refs_only(self) -> bool:
        """Whether only refs are asked for."""
        return self.command in ("ls-remote", "remote")

    @property
    def refspecs(self) -> tuple[str, ...]:
        """What follows the repository on the command line."""
        return self.words[1:]

    @property
    def needs_values(self) -> bool:
        """Whether git compares listed values itself (`--force-with-lease`)."""
        return any(option.startswith("--force-with-lease") for option in self.options)

    @property
    def needs_names(self) -> bool:
        """Whether git acts only on refs that are listed: deletes, and what is to be the same on both sides."""
        return bool(
            self.options & {"--delete", "-d", "--mirror", "--prune"}
            or any(word.startswith((":", "+:")) for word in self.refspecs)
        )


def parse(command_line: Sequence[str]) -> Hint:
    """The hint in a command line, an empty one if it is not git's or not one of the known commands."""
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
    options: set[str] = set()
    values: dict[str, str] = {}
    rest: list[str] = []
    valued = TAKES_VALUE.get(command, frozenset())
    while words:
        word = words.pop(0)
        if word == "--":
            rest += words
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
            continue
        option, equals, value = word.partition("=")
        options.add(option)
        if equals:
            values[option] = value
        elif option in valued and words:
            values[option] = words.pop(0)
    return Hint(command, frozenset(options), values, tuple(rest))


def read(command_line_of: Callable[[int], tuple[int, Sequence[str]] | None], process: int) -> Hint:
    """The hint of the nearest process above that is a known git command.

    `command_line_of` gives a process's parent and command line, or None where it cannot be read.
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
    """A process's parent and command line from /proc."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            words = [word.decode("utf-8", "surrogateescape") for word in file.read().split(b"\0")[:-1]]
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1]), words
    except (OSError, ValueError, IndexError):
        return None


def ps_command_line(process: int) -> tuple[int, list[str]] | None:
    """The same through `ps`, where there is no /proc; words with spaces come apart, which a hint survives."""
    import subprocess

    try:
        done = subprocess.run(
            ["ps", "-o", "ppid=,args=", "-p", str(process)], capture_output=True, text=True, check=False
        )
        parent, *words = done.stdout.split()
        return int(parent), words
    except (OSError, ValueError):
        return None
