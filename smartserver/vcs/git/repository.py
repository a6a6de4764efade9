"""Reads a git repository on this machine through stock plumbing: its format, settings, refs, and whole revisions.

Replacement objects and grafts are disabled for every command, so the original objects are sent and stored.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from binascii import hexlify, unhexlify
from collections.abc import Collection, Iterable, Mapping
from typing import IO, Self

from smartserver.programs import repository_environment
from smartserver.records.model import Kind, RevisionId
from smartserver.vcs.base import ToolFailed
from smartserver.vcs.git.format import FORMATS, ObjectFormat
from smartserver.vcs.git.objects import GitObject, ObjectReader, end
from smartserver.vcs.git.shallow import read as read_shallow
from smartserver.vcs.git.system import GIT

_MAX_CHECKS = 8
"""If not all candidates are complete, the most further runs of git that check groups of them. Candidates left unchecked
are not offered."""

_ANCESTOR_STEPS = tuple(1 << n for n in range(13))
"""Distances from a head to the ancestors that are sent as haves. The walk to the last one takes about 0.1 s."""

_ANCESTOR_HEADS = 8

_NO_FILE = b"refs/heads/.invalid"
"""The ref that the file HEAD names if refs are not files (git's reftable format)."""


class GitRepository:
    """The repository at `git_dir`. Use it as a context manager, or close it, because it may keep a process open."""

    def __init__(self, git_dir: str | os.PathLike[str], environment: Mapping[str, str]) -> None:
        self.git_dir = os.path.abspath(git_dir)
        self.environment = {
            **repository_environment(environment),
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_GRAFT_FILE": os.path.join(os.devnull, "none"),  # Git prints a hint for any file it can open.
            # A partial clone must not fetch missing objects while it is read: a push would turn into a download.
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",  # The same for git before 2.44.
        }
        self.objects = ObjectReader(self.start)
        self._config: dict[str, list[bytes]] | None = None
        self._config_process: subprocess.Popen[bytes] | None = None
        """The process that lists the configuration, until its output is read."""
        self._common_dir: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that are still open."""
        self.objects.close()
        if self._config_process is not None:
            end(self._config_process)

    # ---- running git

    def start(
        self,
        *arguments: str,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        stdout: IO[bytes] | int = subprocess.DEVNULL,
        stderr: IO[bytes] | int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a git command on this repository."""
        command = ["git", "--git-dir", self.git_dir, *arguments]
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=self.environment)

    def run(self, *arguments: str, stdin: bytes = b"", accept: tuple[int, ...] = (0,)) -> bytes:
        """Run a git command and return its output.

        Raises:
            ToolFailed: the exit status is not in `accept`.
        """
        process = self.start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return _output(process, arguments[0], stdin, accept)

    # ---- format and folders

    @property
    def vcs(self) -> str:
        """`git sha1` or `git sha256`."""
        return f"git {self.object_format}"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The one kind of records: every git object is a record, and its type is the record's meta."""
        return GIT[self.vcs].kinds

    @property
    def object_format(self) -> str:
        """`sha1` or `sha256`."""
        return (self.config("extensions.objectformat") or b"sha1").decode("ascii")

    @property
    def format(self) -> ObjectFormat:
        """The parser of the repository's objects."""
        return FORMATS[self.object_format]

    @property
    def id_length(self) -> int:
        """The number of bytes of an object id: 20 or 32."""
        return self.format.id_bytes

    @property
    def common_dir(self) -> str:
        """The folder of objects and shared refs. In a linked work tree it differs from `git_dir`."""
        if self._common_dir is None:
            common = self.environment.get("GIT_COMMON_DIR")
            if not common:
                try:
                    with open(os.path.join(self.git_dir, "commondir"), "rb") as file:
                        common = os.fsdecode(file.read()).rstrip("\n")
                except FileNotFoundError:
                    common = "."
            self._common_dir = os.path.normpath(os.path.join(self.git_dir, common))
        return self._common_dir

    @property
    def object_dir(self) -> str:
        """The folder that new objects are written to."""
        return self.environment.get("GIT_OBJECT_DIRECTORY") or os.path.join(self.common_dir, "objects")

    @property
    def shallow_file(self) -> str:
        """The path of the file that lists the shallow commits."""
        return self.environment.get("GIT_SHALLOW_FILE") or os.path.join(self.common_dir, "shallow")

    def shallow(self) -> set[RevisionId]:
        """Return the shallow commits: those whose parents the repository leaves out."""
        return read_shallow(self.shallow_file)

    @property
    def is_shallow(self) -> bool:
        """True if history was cut off below some commits."""
        return bool(self.shallow())

    @property
    def is_partial(self) -> bool:
        """True if the repository was cloned without some of the objects."""
        settings = self.settings()
        return "extensions.partialclone" in settings or any(
            name.startswith("remote.") and name.endswith(".promisor") and boolean(values[-1])
            for name, values in settings.items()
        )

    # ---- configuration

    def prepare(self, *, objects: bool = False) -> None:
        """Start to read the configuration in the background. With `objects`, start the reader of objects, too."""
        if self._config is None and self._config_process is None:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            self._config_process = self.start("config", "-z", "--list", **pipes)
        if objects:
            self.objects.open()

    def settings(self) -> Mapping[str, list[bytes]]:
        """Return the whole configuration, which is read once: section and name in lower case, all values in order."""
        if self._config is None:
            self.prepare()
            assert self._config_process is not None
            process, self._config_process = self._config_process, None
            listing = _output(process, "config")
            self._config = {}
            for item in listing.split(b"\0"):
                if item:
                    name, _, value = item.partition(b"\n")
                    value = value if b"\n" in item else b"true"  # A name alone is a true boolean.
                    self._config.setdefault(name.decode("utf-8", "surrogateescape"), []).append(value)
        return self._config

    def config(self, name: str) -> bytes | None:
        """Return the effective value of a setting, which is the last one, or None if it is not set."""
        values = self.settings().get(name)
        return values[-1] if values else None

    def path(self, name: str) -> str:
        """Return the value of a setting as git reads a path, which may begin with `~/`."""
        return os.fsdecode(self.run("config", "-z", "--type=path", "--get", name).rstrip(b"\0"))

    def flag(self, *names: str) -> bool:
        """Return the first of the named settings that exists, as a boolean; False if none does."""
        return next((boolean(value) for name in names if (value := self.config(name)) is not None), False)

    def number(self, *names: str, default: int) -> int:
        """Return the first of these settings that is a number in git's form (`10k`), else `default`."""
        for name in names:
            value = self.config(name)
            if value is not None:
                text = value.decode("ascii", "replace").strip().lower()
                shift = {"k": 10, "m": 20, "g": 30}.get(text[-1:], 0)
                with contextlib.suppress(ValueError):
                    return int(text[:-1] if shift else text) << shift
        return default

    def seconds(self, date: str) -> int:
        """Return a date in any form that git accepts (`2 weeks ago`) as seconds since 1970."""
        said = self.run("rev-parse", "--since=" + date)
        return int(said.partition(b"=")[2])

    # ---- refs and revisions

    def refs(self) -> dict[bytes, RevisionId]:
        """Return every ref and its tip, which may be an object of any type."""
        found = self._refs_in_files()
        if found is not None:
            return found
        lines = self.run("for-each-ref", "--format=%(objectname) %(refname)").splitlines()
        return {name: unhexlify(key) for key, _, name in (line.partition(b" ") for line in lines)}

    def _refs_in_files(self) -> dict[bytes, RevisionId] | None:
        """Return the refs without running git; None if only git can read them."""
        from smartserver.vcs.git.refs import read_refs  # Imported late: an `ls-remote` needs none of its patterns.

        head = _symbolic(os.path.join(self.git_dir, "HEAD"))
        if self.common_dir != self.git_dir or head == _NO_FILE or "extensions.refstorage" in self.settings():
            return None
        return read_refs(self.git_dir, self.id_length)

    def head(self) -> bytes | None:
        """Return the ref that HEAD names, which may not exist yet; None if HEAD is detached."""
        # Git takes 3 ms to start. It runs only if HEAD is detached, names a symbolic ref, or is no file (reftable).
        place = os.fsencode(self.common_dir)
        name = _symbolic(os.path.join(self.git_dir, "HEAD"))
        if name.startswith(b"refs/heads/") and name != _NO_FILE and not _symbolic(os.path.join(place, name)):
            return name
        return self.run("symbolic-ref", "-q", "HEAD", accept=(0, 1)).rstrip(b"\n") or None

    def find(self, name: bytes) -> GitObject | None:
        """Return the object that a ref, id or expression denotes, or None."""
        return self.objects.find(name)

    def is_ancestor(self, ancestor: RevisionId, revision: RevisionId) -> bool:
        """Tell whether `revision` is `ancestor` or descends from it; False if the repository lacks one of them."""
        process = self.start("merge-base", "--is-ancestor", ancestor.hex(), revision.hex())
        return process.wait() == 0

    def complete_haves(self, candidates: Iterable[RevisionId], limit: int) -> list[RevisionId]:
        """Return at most `limit` revisions that the repository has with all ancestors and content, the most useful
        first. In a shallow or partial repository, history and objects that were left out on purpose may be missing.

        `candidates`: the last known tips of the remote. The complete candidates come first, then the tips of the refs,
        and of the refs of alternates. If no candidate is complete, some ancestors of the heads follow, in case the refs
        are ahead of the remote.
        """
        refs = self.refs()
        tips = {*refs.values(), *self._borrowed}
        wanted = [key for key in dict.fromkeys(candidates) if len(key) == self.id_length][:limit]
        whole = set(self.whole([key for key in wanted if key not in tips]))
        seen = [key for key in wanted if key in tips or key in whole]
        heads = self._by_weight(refs) + self._borrowed
        haves = dict.fromkeys(seen + heads)
        if not seen and len(haves) < limit:
            haves.update(dict.fromkeys(self._ancestors(heads[:_ANCESTOR_HEADS])))
        return list(haves)[:limit]

    @functools.cached_property
    def _borrowed(self) -> list[RevisionId]:
        """Commits that refs of alternates name (`git clone --reference`), newest first."""
        if not self.environment.get("GIT_ALTERNATE_OBJECT_DIRECTORIES") and not os.path.exists(
            os.path.join(self.object_dir, "info", "alternates")
        ):
            return []
        # The command fails if an alternate is damaged or none has a ref. Then no commit of an alternate is offered.
        lines = self.run("rev-list", "--no-walk", "--alternate-refs", accept=(0, 128, 129)).split()
        return [unhexlify(line) for line in lines]

    def _by_weight(self, refs: Mapping[bytes, RevisionId]) -> list[RevisionId]:
        """Return the tips of all refs: first the tip of HEAD, then those of branches, of remotes, and of other refs."""
        head = self.head()

        def weight(name: bytes) -> int:
            if name == head:
                return 0
            for n, prefix in enumerate((b"refs/heads/", b"refs/remotes/"), 1):
                if name.startswith(prefix):
                    return n
            return 3

        return [refs[name] for name in sorted(refs, key=weight)]

    def existing(self, names: Iterable[bytes]) -> list[tuple[RevisionId, bytes]]:
        """Return the ids and types of those objects of `names` (ids or expressions) that the repository has."""
        asked = b"".join([name + b"\n" for name in names])
        if not asked:
            return []
        answers = self.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked).splitlines()
        rows = [line.split(b" ") for line in answers]
        return [
            (unhexlify(row[0]), row[1])
            for row in rows
            if len(row) == 2 and row[1] in (b"commit", b"tag", b"tree", b"blob")
        ]

    def present(self, keys: Collection[RevisionId]) -> set[RevisionId]:
        """Return the members of `keys` whose objects the repository has. None is fetched into a partial clone."""
        if not self.is_partial or not keys:
            return {key for key, _ in self.existing([hexlify(key) for key in keys])}
        # Git before 2.44 has no other command that reports a missing object instead of fetching it.
        walk = ("rev-list", "--objects", "--no-walk", "--missing=allow-any", "--ignore-missing", "--filter=tree:0")
        found = self.run(*walk, "--stdin", stdin=b"".join([hexlify(key) + b"\n" for key in keys]))
        return {unhexlify(line.partition(b" ")[0]) for line in found.splitlines()}.intersection(keys)

    def _ancestors(self, heads: list[RevisionId]) -> list[RevisionId]:
        """Return the first-parent ancestors at the distances 1, 2, 4, 8 ... from each of `heads`, the nearest first."""
        names = [b"%s~%d" % (hexlify(head), step) for step in _ANCESTOR_STEPS for head in heads]
        return [key for key, kind in self.existing(names) if kind == b"commit"]

    def whole(self, keys: list[RevisionId]) -> list[RevisionId]:
        """Return the members of `keys` whose history and content are complete here. Objects that refs reach count as
        complete; all others are walked. After `_MAX_CHECKS` further checks, the rest is left out."""
        if not keys or self._reaches_all(keys):
            return keys
        present = self.present(keys)
        here = [key for key in keys if key in present]
        whole: list[RevisionId] = []
        groups = [here] if here else []
        for _ in range(_MAX_CHECKS):
            if not groups:
                break
            group = groups.pop(0)
            if self._reaches_all(group):
                whole += group
            elif len(group) > 1:
                half = len(group) // 2
                groups += [group[:half], group[half:]]
        return whole

    def _reaches_all(self, keys: list[RevisionId]) -> bool:
        promised = ["--exclude-promisor-objects"] if self.is_partial else []
        walk = ("rev-list", "--objects", "--quiet", *promised, "--stdin", "--not", "--all")
        process = self.start(*walk, stdin=subprocess.PIPE)
        lines = [hexlify(key) + b"\n" for key in keys] + [b"^" + hexlify(key) + b"\n" for key in self._borrowed]
        process.communicate(b"".join(lines))
        return process.returncode == 0


def _output(
    process: subprocess.Popen[bytes], command: str, stdin: bytes | None = None, accept: Collection[int] = (0,)
) -> bytes:
    try:
        written, said = process.communicate(stdin)
    except BaseException:
        end(process)
        raise
    if process.returncode not in accept:
        raise failure(command, process.returncode, said)
    return written


def _symbolic(path: str | bytes) -> bytes:
    """Return the ref that the file of a symbolic ref names; empty if it names none or is missing."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return b""
    return text.removeprefix(b"ref: ").rstrip() if text.startswith(b"ref: ") else b""


def boolean(value: bytes) -> bool:
    """Parse a setting as git reads a boolean."""
    return value.strip().lower() not in (b"", b"false", b"no", b"off", b"0")


def failure(command: str, status: int, said: bytes) -> ToolFailed:
    """Return the error for a failed git command, with the first and the last line of its output: cause and result."""
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line and not line.startswith("hint:")]
    return ToolFailed(f"git {command}", status, "; ".join(dict.fromkeys(lines[:1] + lines[-1:])))
