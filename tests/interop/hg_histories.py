"""Random histories as Mercurial keeps them, made without a working copy: merges, renames and copies, flags, branches
that are closed, empty changesets, extras, and versions of files that several changesets made by themselves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
from builders import ancestors, bring
from memory_transport import MemoryTransport
from mercurial import changegroup, context, hg, initialization, phases, util
from mercurial import ui as mercurial_ui

from smartserver.records.bulk import read_bulk
from smartserver.records.model import Tip
from smartserver.records.segment import SegmentStream
from smartserver.store.repository import PackRepository
from smartserver.vcs.hg.insert import Arrived
from smartserver.vcs.hg.kinds import NULL
from smartserver.vcs.hg.plan import plan
from smartserver.vcs.hg.repository import HgRepository

Change = tuple[bytes, bytes, bytes | None] | None
"""Content, flags and the file it was copied from; None: removed."""


def quiet_ui() -> Any:
    initialization.init()
    made = mercurial_ui.ui.load()
    for section, name, value in ((b"ui", b"quiet", b"yes"), (b"ui", b"interactive", b"no")):
        made.setconfig(section, name, value, b"test")
    return made


def new_repository(path: object) -> Any:
    return hg.repository(quiet_ui(), str(path).encode(), create=True)


def open_repository(path: object) -> Any:
    return hg.repository(quiet_ui(), str(path).encode())


def verify(path: object) -> tuple[int, str]:
    """Return the status and output of `hg verify`."""
    ui = quiet_ui()
    ui.pushbuffer(error=True)
    status = hg.verify(hg.repository(ui, str(path).encode()))
    return status, ui.popbuffer().decode()


def commit(
    repository: Any,
    parents: tuple[bytes, bytes],
    changes: dict[bytes, Change],
    message: bytes,
    extra: dict[bytes, bytes],
    when: int,
) -> bytes:
    def read(repo: Any, changeset: Any, path: bytes) -> Any:
        change = changes[path]
        if change is None:
            return None
        text, flags, source = change
        return context.memfilectx(repo, changeset, path, text, b"l" in flags, b"x" in flags, source)

    user = "Jos\u00e9 <jo@example.org>".encode()
    made = context.memctx(
        repository, parents, message, list(changes), read, user=user, date=(when, 3600), extra=dict(extra)
    )
    node: bytes = made.commit()
    return node


class RandomHistory:
    """A history of `size` changesets in `repository`, besides the first."""

    def __init__(self, repository: Any, seed: int, size: int, files: int = 40) -> None:
        self.repository = repository
        self.random = random.Random(seed)
        self.paths = [b"f%d" % n for n in range(files)] + [b"d/g%d" % n for n in range(10)] + ["\u00fc.txt".encode()]
        self.parents: dict[bytes, tuple[bytes, ...]] = {}
        first: dict[bytes, Change] = {b"f%d" % n: (b"line %d\n" % n * 30, b"", None) for n in range(files)}
        with repository.lock(), repository.transaction(b"test"):
            self._add((NULL, NULL), first, b"the first", {b"branch": b"default"})
            while len(self.parents) <= size:
                self._step()

    def _add(
        self, parents: tuple[bytes, bytes], changes: dict[bytes, Change], message: bytes, extra: dict[bytes, bytes]
    ) -> None:
        node = commit(self.repository, parents, changes, message, extra, 10**9 + len(self.parents))
        self.parents[node] = tuple([parent for parent in parents if parent != NULL])

    def _step(self) -> None:
        chance = self.random
        nodes = list(self.parents)
        first = chance.choice(nodes[-6:])
        branch = self.repository[first].branch()
        if chance.random() < 0.15:
            second = chance.choice(nodes[-8:])
            if second != first and not {first, second} & (self.ancestors(first) & self.ancestors(second)):
                self._merge(first, second)
                return
        changes: dict[bytes, Change] = {}
        for _ in range(chance.choice((0, 1, 1, 2, 4))):
            self._change(self.repository[first], changes)
        extra = {b"branch": chance.choice([branch] * 5 + [b"b%d" % chance.randrange(3)])}
        if chance.random() < 0.06:
            extra[b"close"] = b"1"
        if chance.random() < 0.2:
            extra[b"x"] = b"a\0b\n\\"
        self._add((first, NULL), changes, f"change {len(nodes)} \u20ac\n\nmore".encode(), extra)

    def _merge(self, first: bytes, second: bytes) -> None:
        mine, theirs = self.repository[first], self.repository[second]
        changes: dict[bytes, Change] = {}
        for path in sorted(set(mine.manifest()) | set(theirs.manifest())):
            if path in theirs and (path not in mine or mine[path].filenode() != theirs[path].filenode()):
                same = self.random.random() < 0.7
                text = theirs[path].data() if same else b"merged %d\n" % len(self.parents)
                changes[path] = (text, theirs[path].flags(), None)
        self._add((first, second), changes, b"a merge", {b"branch": mine.branch()})

    def _change(self, before: Any, changes: dict[bytes, Change]) -> None:
        chance, path = self.random, self.random.choice(self.paths)
        kind = chance.random()
        if kind < 0.15 and path in before:
            changes[path] = None
        elif kind < 0.3 and path in before:
            changes[path] = (before[path].data(), chance.choice((b"", b"x")), None)
        elif kind < 0.45:
            source = chance.choice(sorted(before.manifest()) or [path])
            if source in before and source != path:
                changes[path] = (before[source].data() + b"copied\n", b"", source)
                if chance.random() < 0.5:
                    changes[source] = None
        elif kind < 0.55:
            changes[path] = (b"target", b"l", None)
        elif kind < 0.6:
            changes[path] = (b"\1\nlooks like metadata\n", b"", None)
        else:  # Often the same on two branches.
            changes[path] = (b"same change %d\n" % chance.randrange(4), b"", None)

    def ancestors(self, *nodes: bytes) -> set[bytes]:
        """Return nodes and all their ancestors."""
        return ancestors(nodes, self.parents)


class Served:
    """A repository of ours that Mercurial's repositories push to and pull from, without a client or a link."""

    def __init__(self) -> None:
        self.repository = PackRepository(MemoryTransport(), "project")

    def push(self, local: Any, tips: Sequence[bytes], haves: Sequence[bytes] = ()) -> int:
        """Push `tips` to refs of their own, and return the number of sent changesets."""
        segments = list(plan(HgRepository(local), tips, haves).segments())
        self.bring(segments, tips)
        return len(segments)

    def bring(self, segments: Sequence[bytes], tips: Sequence[bytes]) -> None:
        """Store segments, and move refs, as a server does for a push."""
        bring(self.repository, HgRepository.vcs, segments, {tip.hex().encode(): Tip(tip) for tip in tips})

    def segments(self, wanted: Sequence[bytes], haves: Sequence[bytes] = ()) -> list[bytes]:
        """Return the segments of a pull, read from a bulk stream, which hg asks for."""
        transaction = self.repository.begin()
        stream = SegmentStream(graph_first=False)
        plan = msgspec.structs.replace(transaction.plan_pull(wanted, haves, ()), bulk=True, expanded=True)
        body = transaction.open_body(plan)
        for chunk in read_bulk(iter(lambda: body.read(50_000), b"")):
            stream.feed(chunk)
        stream.finish()
        return list(stream.segments())

    def pull(self, local: Any, wanted: Sequence[bytes]) -> int:
        """Pull into a repository of Mercurial's, and return the number of received changesets."""
        mine = HgRepository(local)
        with Arrived(mine) as arrived:
            for segment in self.segments(wanted, mine.complete_haves((), 256)):
                arrived.add(segment)
            count = len(arrived.parents)
            chunks = util.chunkbuffer(arrived.chunks(arrived.parents))
            with local.lock(), local.transaction(b"test") as transaction:
                unpacker = changegroup.getunbundler(b"03", chunks, None)
                unpacker.apply(local, transaction, b"pull", b"test:", targetphase=phases.draft, expectedtotal=count)
        return count
