"""`git-remote-hpss`: git's remote-helper protocol on two streams, each command of the user one request.

`list` is the one pull of a fetch: the objects stay in the unread stream until git says `fetch`. `list for-push` asks
nobody: every cached ref is listed with an unknown value (`?`), so that git leaves each decision to the server.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from smartserver.client.knowledge import Knowledge
from smartserver.client.repository import NewRepository, Outcome, Pulled, RefUpdate, RemoteRepository, Updated
from smartserver.errors import (
    BranchExists,
    DivergedBranches,
    HeadBranch,
    MissingRevision,
    NoSuchRepository,
    NotDone,
    StaleLease,
    WrongVcs,
)
from smartserver.plugins.git_hint import Hint
from smartserver.plugins.git_listing import HEADS, NO_TIP, TAGS, Leases, must_ask, removes_others
from smartserver.plugins.git_wants import Wants, wants
from smartserver.records.model import Announced, Key, Kind, RevisionId
from smartserver.records.segment import SegmentStream
from smartserver.records.varint import Malformed
from smartserver.vcs.base import Plan, VcsError
from smartserver.vcs.git import GitRepository
from smartserver.vcs.git_objects import COMMIT
from smartserver.verbs.repository_pull import MAX_HAVES
from smartserver.verbs.rules import Rule

HEAD = "HEAD"
"""The setting that names the branch a clone checks out."""

PROGRESS_INTERVAL = 0.2
"""Seconds between two lines of progress, as git's own."""

UNSHALLOW = "2147483647"
"""The depth git asks for to make a shallow repository whole (INFINITE_DEPTH)."""

UNSUPPORTED = {
    "depth": "--depth is not supported: the whole history is fetched",
    "deepen-since": "--shallow-since is not supported: the whole history is fetched",
    "deepen-not": "--shallow-exclude is not supported: the whole history is fetched",
    "filter": "--filter is not supported: all objects are fetched",
}
"""Options git goes on without; where it does not (`--push-option`, `--signed`) it says so itself."""


NOT_ATOMIC = b"atomic push failed"
NOT_A_COMMIT = b"failed to update ref: a branch must point at a commit"


class CannotGoOn(Exception):
    """The command cannot go on; one line for the user."""


@dataclass(slots=True)
class Options:
    """What git has set with `option`."""

    progress: bool = False
    verbosity: int = 1
    dry_run: bool = False
    atomic: bool = False
    leases: dict[bytes, bytes] = field(default_factory=dict)


class GitRemote:
    """One run of the helper: commands come in, answers go out, the user is spoken to on `say`."""

    def __init__(
        self,
        remote: str,
        path: str,
        repository: RemoteRepository,
        local: Callable[[], GitRepository | None],
        hint: Hint,
        commands: IO[bytes],
        answers: IO[bytes],
        say: Callable[[str], None],
    ) -> None:
        """`local` opens the repository git runs in, None where there is none (`ls-remote` anywhere)."""
        self._remote = remote
        self._path = path
        self._repository = repository
        self._open_local = local
        self._hint = hint
        self._commands = commands
        self._answers = answers
        self._say = say
        self._options = Options()
        self._opened: GitRepository | None = None
        self._pulled: Pulled | None = None
        self._listed: set[bytes] = set()
        """The refs of the remote a push was decided on."""
        self._wanted: set[bytes] = set()
        self._keeps: list[str] = []
        """Files that keep new packs from being collected, removed at the end: git may end before it removes its one."""
        self._reported = 0.0

    @property
    def _knowledge(self) -> Knowledge:
        return self._repository.knowledge

    # -- the conversation

    def run(self) -> None:
        """Answer commands until git has no more.

        Raises:
            CannotGoOn, VcsError, CodedError, MediumError, ProtocolError: the command cannot go on.
        """
        try:
            while line := self._line():
                self._command(line)
        finally:
            if self._opened is not None:
                self._opened.close()
            for keep in self._keeps:
                with contextlib.suppress(OSError):
                    os.unlink(keep)

    def _local(self) -> GitRepository | None:
        """The repository git runs in, opened once; None where there is none."""
        if self._opened is None:
            self._opened = self._open_local()
        return self._opened

    def _local_or_fail(self, command: str) -> GitRepository:
        local = self._local()
        if local is None:
            raise CannotGoOn(f"{command} outside a repository")
        return local

    def _command(self, line: bytes) -> None:
        command, _, argument = line.partition(b" ")
        if command == b"capabilities":
            self._answer(b"fetch", b"push", b"option", b"object-format", b"")
        elif command == b"option":
            self._answer(self._option(argument.decode("utf-8", "surrogateescape")))
        elif command == b"list":
            self._list_for_push() if argument == b"for-push" else self._list()
        elif command == b"fetch":
            self._fetch(self._batch(b"fetch", argument))
        elif command == b"push":
            self._push(self._batch(b"push", argument))
        else:
            raise CannotGoOn(f"git sent an unknown command: {line.decode('utf-8', 'replace')}")

    def _line(self) -> bytes:
        return self._commands.readline().rstrip(b"\n")

    def _batch(self, command: bytes, first: bytes) -> list[bytes]:
        batch = [first]
        while line := self._line():
            name, _, argument = line.partition(b" ")
            if name != command:
                raise CannotGoOn(f"git sent {name.decode('utf-8', 'replace')} among {command.decode()} commands")
            batch.append(argument)
        return batch

    def _answer(self, *lines: bytes) -> None:
        self._answers.write(b"".join([line + b"\n" for line in lines]))
        self._answers.flush()

    def _option(self, argument: str) -> bytes:
        name, _, value = argument.partition(" ")
        options = self._options
        if name == "progress":
            options.progress = value == "true"
        elif name == "dry-run":
            options.dry_run = value == "true"
        elif name == "atomic":
            options.atomic = value == "true"
        elif name == "verbosity":
            options.verbosity = int(value)
        elif name == "cas":
            ref, _, expected = _unquote(value).rpartition(b":")
            tip = bytes.fromhex(expected.decode("ascii"))
            options.leases[ref] = tip if any(tip) else NO_TIP  # Git writes zeros for a ref that must not exist.
        elif name not in ("followtags", "cloning", "object-format", "force", "force-if-includes"):
            # Git turns off depth for the tags it follows after a fetch: that needs no word.
            if name == "depth" and value == UNSHALLOW:
                raise CannotGoOn("--unshallow is not supported: clone anew, or unshallow from where this was cloned")
            if name in UNSUPPORTED and value != "0":
                self._say(f"hpss: {UNSUPPORTED[name]}")
            return b"unsupported"
        return b"ok"

    def _reopened(self, command: str) -> GitRepository:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        return self._local_or_fail(command)

    # -- fetch

    def _list(self) -> None:
        """Pull what git will want, and list the refs."""
        local = None if self._hint.refs_only else self._local()
        if local is None:
            self._repository.learn_refs()
        else:
            self._pull(local, wants(self._hint, self._remote, local.settings(), local.id_length))
        self._check_vcs()
        refs = {name: value for name, value in self._knowledge.refs().items() if _sayable(name)}
        lines = _format(self._knowledge.vcs.partition(" ")[2])
        head = self._knowledge.settings.get(HEAD, b"")
        if head in refs:
            lines.append(b"@" + head + b" HEAD")
        lines += [value[0].id.hex().encode() + b" " + name for name, value in sorted(refs.items())]
        self._answer(*lines, b"")

    def _pull(self, local: GitRepository, wanted: Wants) -> None:
        haves = local.complete_haves(self._knowledge.tips(), MAX_HAVES)
        self._pulled = self._repository.pull(haves, wanted.refs, wanted.ids, wanted.follow)
        self._check_vcs()
        head = self._knowledge.settings.get(HEAD, b"")
        covered = [value for name, value in self._knowledge.refs().items() if _covers(wanted, name, head)]
        self._wanted = {*wanted.ids, *(tip.id for value in covered for tip in value)}
        if self._pulled.result.segments and not _absent(local, self._wanted):
            # Only followed tags come. Git fetches none of them by itself, but takes those whose object it sees here.
            self._insert(local, loose=True)

    def _check_vcs(self) -> None:
        vcs = self._knowledge.vcs
        if vcs and not vcs.startswith("git "):
            raise WrongVcs(self._path, vcs, "git")

    def _fetch(self, batch: Sequence[bytes]) -> None:
        """Put what was pulled into the repository; what was not foreseen takes another pull."""
        local = self._local_or_fail("fetch")
        if self._knowledge.vcs != local.vcs:  # A clone changes its format to what was listed.
            local = self._reopened("fetch")
        ids = {bytes.fromhex(line.partition(b" ")[0].decode("ascii")) for line in batch}
        self._insert(local)
        missing = _absent(local, ids)
        if missing:
            self._pull_missing(local, missing)
        # Git removes the one file it may be told of once its refs are written.
        self._answer(*[b"lock " + keep.encode("utf-8", "surrogateescape") for keep in self._keeps[:1]], b"")

    def _pull_missing(self, local: GitRepository, missing: Sequence[bytes]) -> None:
        try:
            self._pull(local, Wants((), tuple(missing)))
        except MissingRevision as wrong:
            # Only a server put back to an earlier state can be at the version remembered with other refs.
            self._knowledge.forget()
            raise CannotGoOn(f"{wrong}; what was remembered of {self._path!r} is forgotten now: try again") from None
        self._insert(local)

    def _insert(self, local: GitRepository, *, loose: bool = False) -> None:
        """Put what was pulled into the repository; `loose`: not as a pack, which git would look for only in a fetch."""
        from smartserver.vcs.git_insert import Inserter

        pulled, self._pulled = self._pulled, None
        if pulled is None or not pulled.result.segments:
            return
        if self._knowledge.vcs != local.vcs:
            raise WrongVcs(self._path, self._knowledge.vcs, local.vcs)
        total = pulled.result.segments
        segments = self._count("Receiving revisions", _segments(pulled, local.kinds), total)
        try:
            inserted = Inserter(local).insert(segments, loose=loose)
        except Malformed as wrong:
            raise CannotGoOn(f"what the server sent of {self._path!r} cannot be read: {wrong}") from wrong
        if inserted.keep:
            self._keeps.append(inserted.keep)

    # -- push

    def _list_for_push(self) -> None:
        """List what is known of the refs; ask only where git would otherwise not send what the user means."""
        local = self._local_or_fail("push")
        known = self._knowledge
        lacking = local.is_shallow or local.is_partial  # It cannot send what the remote is likely to have.
        if must_ask(self._hint, self._remote, local, known.refs(), met=known.met) or (lacking and not known.met):
            self._ask_refs()
        expected: Mapping[bytes, bytes] = {}
        if self._hint.leases:
            expected = self._leased(local)
        self._listed = set(known.refs())
        values = {name: b"?" for name in self._listed if name not in expected and _sayable(name)}
        values.update((name, tip.hex().encode()) for name, tip in expected.items() if tip)
        # Git need not believe what the remote was: another format is the server's to refuse.
        self._answer(*_format(local.object_format), *[values[name] + b" " + name for name in sorted(values)], b"")

    def _leased(self, local: GitRepository) -> Mapping[bytes, bytes]:
        """The values to list of leased refs."""
        leases = Leases(self._hint, self._remote, local, self._knowledge.refs())
        if not leases.settled:
            return leases.expected
        self._ask_refs()
        refs = self._knowledge.refs()
        return {name: refs[name][0].id if name in refs else NO_TIP for name in leases.expected}

    def _ask_refs(self) -> None:
        with contextlib.suppress(NoSuchRepository):  # The push will make it.
            self._repository.learn_refs()

    def _push(self, batch: Sequence[bytes]) -> None:
        local = self._local_or_fail("push")
        updates = [self._update(local, line) for line in batch]
        refused = [update for update in updates if not _may_be(local, update)]
        lines = [b"error " + update.ref + b" " + NOT_A_COMMIT for update in refused]
        updates = [update for update in updates if update not in refused]
        if refused and self._options.atomic:
            lines += [b"error " + update.ref + b" " + NOT_ATOMIC for update in updates]
            updates = []
        if updates:
            lines += self._send(local, updates)
            if removes_others(self._hint, self._remote, local):
                self._tell_of_others(updates)
        self._answer(*lines, b"")

    def _tell_of_others(self, updates: Sequence[RefUpdate]) -> None:
        """Say which refs git was not told of: it could not remove them."""
        others = self._knowledge.refs().keys() - self._listed - {update.ref for update in updates}
        for name in sorted(others):
            shown = name.decode("utf-8", "replace")
            self._say(f"hpss: {shown} was made meanwhile and is still there: push again to have it removed")

    def _send(self, local: GitRepository, updates: Sequence[RefUpdate]) -> list[bytes]:
        """Push, and say what became of each update."""
        new = NewRepository(local.vcs, local.kinds, {HEAD: self._new_head(local, updates)})
        source = _Source(local, self._count)
        try:
            done = self._repository.push(
                updates, source, new, atomic=self._options.atomic, check_only=self._options.dry_run
            )
        except VcsError as wrong:
            raise CannotGoOn(str(wrong)) from wrong
        self._check_vcs()
        return [line for updated in done for line in self._report(local, updated)]

    def _update(self, local: GitRepository, line: bytes) -> RefUpdate:
        force = line.startswith(b"+")
        source, _, ref = line.lstrip(b"+").rpartition(b":")
        lease = self._options.leases.get(ref)
        if not source:
            return RefUpdate(ref, None, expected=lease)
        found = local.find(source)
        if found is None:
            raise CannotGoOn(f"{source.decode('utf-8', 'replace')} is not an object of this repository")
        if lease is not None:
            return RefUpdate(ref, found.key, Rule.LEASE, expected=lease)
        if force:
            rule = Rule.FORCE
        else:
            rule = Rule.NEW if ref.startswith(TAGS) else Rule.FF
        return RefUpdate(ref, found.key, rule)

    def _new_head(self, local: GitRepository, updates: Sequence[RefUpdate]) -> bytes:
        """What HEAD of a repository made by this push names."""
        pushed = [update.ref for update in updates if update.tip and update.ref.startswith(b"refs/heads/")]
        head = local.head() or b"refs/heads/main"
        return head if head in pushed or not pushed else pushed[0]

    def _report(self, local: GitRepository, updated: Updated) -> list[bytes]:
        update, ref = updated.update, updated.update.ref
        if updated.outcome is Outcome.REFUSED:
            return [b"error " + ref + b" " + self._why(local, updated).encode()]
        if updated.outcome is Outcome.UNCHANGED and update.tip is not None:
            return [b"error " + ref + b" up to date"]
        lines = [b"ok " + ref]
        if updated.old and update.tip is not None:
            lines += [b"option old-oid " + updated.old.hex().encode(), b"option new-oid " + update.tip.hex().encode()]
            may_force = update.rule in (Rule.FORCE, Rule.LEASE)
            if may_force and (ref.startswith(TAGS) or not local.is_ancestor(updated.old, update.tip)):
                lines.append(b"option forced-update")
        return lines

    def _why(self, local: GitRepository, updated: Updated) -> str:
        """The reason in the words git knows, so that it gives its own advice."""
        error = updated.error
        match error:
            case DivergedBranches():
                return "non-fast forward" if local.find(error.tip.hex().encode()) else "fetch first"
            case BranchExists():
                return "already exists"
            case StaleLease():
                return "stale info"
            case HeadBranch():
                return "deletion of the current branch prohibited"
            case NotDone():
                return NOT_ATOMIC.decode()
            case _:
                return " ".join(str(error).split())

    # -- progress

    def _count(self, what: str, segments: Iterator[bytes], total: int) -> Iterator[bytes]:
        """Pass segments on, telling the user how many; silent below a second, like git."""
        if not self._options.progress:
            yield from segments
            return
        start = time.monotonic()
        done = shown = size = 0
        for segment in segments:
            yield segment
            done += 1
            size += len(segment)
            now = time.monotonic()
            if now - start > 1 and now - self._reported > PROGRESS_INTERVAL:
                self._reported = now
                shown = done
                self._progress(what, done, total, size, end="\r")
        if shown:
            self._progress(what, done, total, size, end="\n")

    def _progress(self, what: str, done: int, total: int, size: int, end: str) -> None:
        percent = 100 * done // total if total else 0
        self._say(f"{what}: {percent:3d}% ({done}/{total}), {size / 1e6:.2f} MB{end}")

    def server_progress(self, phase: str, done: int, total: int) -> None:
        """Show what the server says of itself."""
        if self._options.progress and total:
            phase = "".join(character for character in phase if character.isprintable())
            self._say(f"remote: {phase} {100 * done // total:3d}%" + ("\n" if done >= total else "\r"))


Count = Callable[[str, Iterator[bytes], int], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class _Source:
    """The local repository as a push reads it, its progress shown."""

    local: GitRepository
    count: Count

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> _ShownPlan:
        from smartserver.vcs.git_read import plan

        return _ShownPlan(plan(self.local, tips, haves), self.count)


@dataclass(frozen=True, slots=True)
class _ShownPlan:
    """A plan whose segments are counted as they are sent."""

    plan: Plan
    count: Count

    @property
    def graph(self) -> Sequence[Announced]:
        return self.plan.graph

    def segments(self) -> Iterator[bytes]:
        return self.count("Sending revisions", self.plan.segments(), len(self.plan.graph))

    def without_bases(self, keys: Collection[Key]) -> _ShownPlan:
        return _ShownPlan(self.plan.without_bases(keys), self.count)


def _segments(pulled: Pulled, kinds: Sequence[Kind]) -> Iterator[bytes]:
    """The whole segments of a body as they come.

    Raises:
        Malformed: it does not end where a segment does.
        CannotGoOn: there are fewer or more than were announced.
    """
    stream = SegmentStream(kinds, graph_first=False)
    count = 0
    for chunk in pulled.body:
        stream.feed(chunk)
        for segment in stream.segments():
            count += 1
            yield segment
    stream.finish()
    if count != pulled.result.segments:
        raise CannotGoOn(f"the server sent {count} revisions, having announced {pulled.result.segments}")


def _covers(wanted: Wants, name: bytes, head: bytes) -> bool:
    """Whether a pull brings a ref for certain; followed tags may not come."""
    if wanted.refs is None:
        return True
    for pattern in wanted.refs:
        if pattern == b"HEAD" and name == head:
            return True
        if pattern.endswith(b"*") and name.startswith(pattern[:-1]):
            return True
        if name.startswith(pattern) if pattern.endswith(b"/") else name == pattern:
            return True
    return False


def _format(object_format: str) -> list[bytes]:
    """The line that says of what format listed ids are; git takes sha1 for granted."""
    return [] if object_format in ("", "sha1") else [b":object-format " + object_format.encode()]


def _sayable(name: bytes) -> bool:
    """Whether a name can be a word of a line; no name that git allows cannot."""
    return bool(name) and min(name) > 0x20 and 0x7F not in name


def _may_be(local: GitRepository, update: RefUpdate) -> bool:
    """Whether git allows it on its own server: a branch points at a commit and at nothing else."""
    if update.tip is None or not update.ref.startswith(HEADS):
        return True
    found = local.find(update.tip.hex().encode())
    return found is not None and found.type == COMMIT


def _absent(local: GitRepository, ids: Collection[bytes]) -> list[bytes]:
    """Those of `ids` that are not here."""
    here = {key for key, _ in local.existing([key.hex().encode() for key in ids])}
    return sorted(set(ids) - here)


def _unquote(value: str) -> bytes:
    """A value as git writes it: in double quotes with C escapes when it has odd characters."""
    if not value.startswith('"'):
        return value.encode("utf-8", "surrogateescape")
    out = bytearray()
    text = value[1:-1].encode("utf-8", "surrogateescape")
    at = 0
    escapes = {b"n": 10, b"t": 9, b"r": 13, b"a": 7, b"b": 8, b"f": 12, b"v": 11, b"\\": 92, b'"': 34}
    while at < len(text):
        if text[at] != 92:
            out.append(text[at])
            at += 1
        elif text[at + 1 : at + 2].isdigit():
            out.append(int(text[at + 1 : at + 4], 8))
            at += 4
        else:
            out.append(escapes.get(text[at + 1 : at + 2], text[at + 1]))
            at += 2
    return bytes(out)
