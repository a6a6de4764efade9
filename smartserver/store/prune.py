"""Prune: removes unreached revisions, with the records that only they introduced.

Refs reach revisions, and so do entries of maps that keep a revision alive, such as tags. Each pack with unreached
revisions is written again without them; the other segments are copied unchanged. No frame is decoded: the base of a
record was introduced by its own revision or an ancestor, which stays if the record stays. A later pack may change too:
a base key means the copy at the lowest position, and that copy may be removed. Then the later pack is also written
again, with a new index.

One record names the new packs in place of the old ones. It gives the repository a new incarnation, because ordinals
change: servers and clients read again everything that depends on ordinals. A crash before that record leaves unnamed
packs, which upkeep drops. The old files are deleted a day later, as every dropped pack.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from smartserver.errors import CorruptFile, IncompleteRepository, LimitExceeded
from smartserver.records.model import RevisionId
from smartserver.records.segment import decode_segment
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed
from smartserver.store.format import LOG
from smartserver.store.graph import Graph
from smartserver.store.index import Index, record_digest
from smartserver.store.index_build import IndexBuilder
from smartserver.store.lost import RECOVERED
from smartserver.store.open_pack import OpenPack, index_path, pack_path
from smartserver.store.pack import PackWriter
from smartserver.store.quarantine import Quarantine
from smartserver.store.record import Beginning, Change, Entry, Join
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import MAP, State, following
from smartserver.store.trailer import Trailer, encode_trailer
from smartserver.store.verify_packs import lineages
from transports.errors import TransportFailed

USER = "prune"
"""The user in the log entry of a prune."""

TRIES = 3
"""The most tries of a prune. A try fails if the repository is changed meanwhile."""


class Unreached(NamedTuple):
    """The unreached revisions of a repository."""

    ordinals: Sequence[int]
    """The ordinals of the unreached revisions, ascending."""
    heads: Sequence[RevisionId]
    """The unreached revisions without unreached descendants."""
    bytes: int
    """The size of the unreached segments in the packs, in bytes."""


def unreached(snapshot: Snapshot) -> Unreached:
    """Find the revisions of a repository that no ref and no entry of a map reaches."""
    graph, state = snapshot.graph, snapshot.state
    if state.is_incomplete:
        raise IncompleteRepository(snapshot.transport.describe())
    system = system_of(state.vcs)
    roots = {tip.id for value in state.refs().values() for tip in value}
    for name in state.maps:
        roots.update(system.named_revisions(name, state.map(name)))
    found = [ordinal for ordinal in map(graph.ordinal, roots) if ordinal is not None]
    reached = bytearray(graph.count)
    for ordinal in graph.missing(sorted(found), []):
        reached[ordinal] = 1
    ordinals = [ordinal for ordinal in range(graph.count) if not reached[ordinal]]
    inner = {parent for ordinal in ordinals for parent in graph.parents(ordinal)}
    heads = [graph.revision(ordinal) for ordinal in ordinals if ordinal not in inner]
    return Unreached(ordinals, heads, snapshot.size((ordinal, ordinal + 1) for ordinal in ordinals))


def prune(repository: PackRepository, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Remove the unreached revisions, and return their number. `progress` is called with the number of packs done, and
    the number of all packs."""
    for _ in range(TRIES):
        snapshot = repository.snapshot()
        found = unreached(snapshot)
        if not found.ordinals or _Pruning(repository, snapshot, found.ordinals).run(progress):
            return len(found.ordinals)
    raise TransportFailed(LOG, "other processes kept changing the repository; try again")


class _Pruning:
    """One try to replace the packs of a state."""

    def __init__(self, repository: PackRepository, snapshot: Snapshot, ordinals: Sequence[int]) -> None:
        self._repository = repository
        self._snapshot = snapshot
        self._gone = frozenset(ordinals)
        self._packs: list[OpenPack] = []
        """The packs of the new state so far, in order."""
        self._changed: set[bytes] = set()
        """The digests of the records whose first copy was removed, or got another depth or chain size."""
        self._places: list[Quarantine] = []
        self._joins: list[Join] = []

    def run(self, progress: Callable[[int, int], None]) -> bool:
        """Replace the packs; return False if the repository was changed meanwhile."""
        line = self._repository.log
        with contextlib.ExitStack() as undo:
            undo.callback(self._discard)
            for number, pack in enumerate(self._snapshot.packs):
                progress(number, len(self._snapshot.packs))
                self._packs.append(self._written(number, pack) if self._is_touched(number, pack) else pack)
            progress(len(self._packs), len(self._packs))
            moves = [step for place in self._places for step in place.moves()]
            incarnation = self._repository.randomness(16)

            def judge(state: State) -> tuple[bytes, State] | None:
                return self._record(state, incarnation) if state.hash == self._snapshot.state.hash else None

            head, kept = line.append_naming(moves, [pack_path(join.into.name) for join in self._joins], judge, undo)
            state = head.state
            if state.incarnation == incarnation:
                return True
            if not any(join.into.name in state.dropped for join in self._joins):
                kept.close()
            return False

    def _discard(self) -> None:
        for place in self._places:
            place.discard()

    def _is_touched(self, number: int, pack: OpenPack) -> bool:
        """Tell whether a pack must be written again."""
        part = self._snapshot.graph.parts[number]
        if not self._gone.isdisjoint(range(part.first, part.first + part.count)):
            return True
        return bool(self._changed) and any(record_digest(*base) in self._changed for base in pack.index.externals())

    def _written(self, number: int, pack: OpenPack) -> OpenPack:
        """Write a pack again without the removed revisions, and open it at its future path."""
        snapshot, state = self._snapshot, self._snapshot.state
        place = self._repository.quarantine(USER.encode())
        self._places.append(place)
        earlier = Snapshot(snapshot.transport, state, self._packs, Graph(), snapshot.texts)
        builder = IndexBuilder(earlier.first_row)
        known = iter(lineages(pack.index))
        first = snapshot.graph.parts[number].first
        with contextlib.closing(place.pack) as file:
            writer = PackWriter(file, state.kinds)
            for ordinal, (offset, content) in enumerate(pack.reader.segments(), first):
                try:
                    segment = decode_segment(content, 0, state.kinds)
                except (Malformed, LimitExceeded) as error:
                    raise CorruptFile(pack.path, offset, f"segment: {error}") from error
                if ordinal in self._gone:
                    list(islice(known, len(segment.entries)))
                else:
                    builder.add(writer.length, segment, known)
                    writer.append(content)
            if pack.reader.trailer() != pack.entry.hash:
                raise CorruptFile(pack.path, pack.reader.end, "the hash at its end differs from the one in the log")
            length, digest = writer.finish()
            file.write(encode_trailer(Trailer(state.incarnation, state.version, state.hash, None)))
            file.sync()
            pieces = list(builder.finish(length, digest))
            entry = place.put_index(length, digest, pieces, builder.segments, builder.records)
        self._joins.append(Join((pack.entry.name,), entry))
        # The new pack is in quarantine, where no other process moves it.
        made = OpenPack(snapshot.transport, entry, state.kinds, lambda entry, index: None)
        made.open_index(earlier.first_row, {index_path(entry.name): b"".join(pieces)})
        self._note_changes(pack.index, made.index)
        return made

    def _note_changes(self, old: Index, new: Index) -> None:
        """Add the records of a pack to `_changed` whose first copy in the pack changed in a way on which indexes of
        later packs depend."""
        before = b""
        for row in range(old.records):
            digest = old.digest(row)
            if digest != before:
                found = new.find_digest(digest)
                if not found or new.row(found[0])[:2] != old.row(row)[:2]:
                    self._changed.add(digest)
            before = digest

    def _record(self, state: State, incarnation: bytes) -> tuple[bytes, State]:
        begins = Beginning(incarnation, state.vcs, state.kinds)
        said = RECOVERED + state.incarnation + incarnation  # So `recover` still finds the packs that a crash left.
        entry = Entry(self._repository.randomness(16), USER, said, tuple(self._entries(state)), begins=begins)
        return following(state, self._repository.clock(), (entry,), self._joins)

    def _entries(self, state: State) -> Iterator[Change]:
        """Yield the removal of each map entry that names a removed revision. Such an entry did not keep the revision
        alive."""
        system, graph = system_of(state.vcs), self._snapshot.graph
        for name in state.maps:
            for key, value in state.map(name).items():
                if not system.entry_problem(name, key, value):
                    revision = system.entry_revision(name, key, value)
                    if revision and graph.ordinal(revision) in self._gone:
                        yield Change(MAP + name, key, value, None)
