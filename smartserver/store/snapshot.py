"""A snapshot: a state, its packs and their graph. It is immutable; a reader keeps the snapshot that it began with.

A missing index or pack while a snapshot is opened (`NoSuchFile`) means that there is a newer state: the caller looks
again. In an open snapshot, a missing pack is read from the pack that has its segments now (`open_pack`), as long as the
incarnation is the same: then neither ordinals nor segments have changed.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, takewhile
from operator import eq
from typing import NamedTuple

from smartserver.errors import CorruptFile, LimitExceeded, NoSuchRepository, RepositoryChanged, shown
from smartserver.records.model import Key, Parent, RevisionId
from smartserver.records.segment import decode_parents
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed
from smartserver.store import remote
from smartserver.store.caches import TextCache
from smartserver.store.format import LOG
from smartserver.store.graph import Graph, Part
from smartserver.store.index import Index, Row
from smartserver.store.index_build import Resolve
from smartserver.store.log_view import NOWHERE, TRIES, Head, LogView, Perform
from smartserver.store.open_pack import NONE_READ, FilesRead, OpenPack, SegmentReader, index_path, pack_path
from smartserver.store.record import PackEntry
from smartserver.store.state import State
from smartserver.store.stored_records import HEADER, StoredRecords
from transports.base import Capability, Transport
from transports.errors import NoSuchFile


class Snapshot(StoredRecords):
    """The open packs of one state, and their graph."""

    @classmethod
    def open(
        cls,
        transport: Transport,
        state: State,
        previous: Snapshot | None = None,
        texts: TextCache | None = None,
        again: Reopen | None = None,
        brought: FilesRead = NONE_READ,
    ) -> Snapshot:
        """Open the snapshot of a state, reusing the open packs and the cache of `previous`. `again`: opens the newest
        state, to find the segments of packs that are deleted meanwhile. `brought`: the content, by path, of files that
        need not be read."""
        if texts is None:
            texts = previous.texts if previous is not None else TextCache()
        opened: dict[PackEntry, tuple[OpenPack, Part]] = {}
        # A repository that was created again, or recovered, has other ordinals.
        if previous is not None and _family(previous.state) == _family(state):
            if previous.state.packs == state.packs:
                return cls(transport, state, previous.packs, previous.graph, texts)
            opened = {pack.entry: (pack, part) for pack, part in zip(previous.packs, previous.graph.parts, strict=True)}
        if again is None:
            again = partial(cls.open, transport, state, None, texts)
        seek = partial(_seek, again, _family(state))
        packs: list[OpenPack] = []
        graph = Graph()
        read = NONE_READ
        is_remote = remote.is_remote(transport)
        if is_remote or Capability.OBJECTS in transport.capabilities:
            came = [entry for entry in state.packs if entry not in opened]
            if not is_remote:  # A large index has a local copy, which is read in blocks.
                came = [entry for entry in came if entry.index_length <= remote.SMALL]
            files = {index_path(entry.name): entry.index_length for entry in came}
            if is_remote and (opened or Capability.OBJECTS not in transport.capabilities):
                size = 0
                for entry in reversed(came):
                    size += entry.length
                    if size > remote.SMALL:
                        break
                    files[pack_path(entry.name)] = entry.length
            left = {path: size for path, size in files.items() if path not in brought}
            read = {**brought, **dict(remote.get_all(transport, left))}
        for entry in state.packs:
            pack, part = opened.get(entry) or (OpenPack(transport, entry, state.kinds, seek), None)
            if part is None:
                pack.open_index(cls(transport, state, packs, graph, texts).first_row, read)
            graph, missing = graph.with_index(pack.index, part)
            if missing:
                raise CorruptFile(pack.path, 0, f"the parent {shown(missing[0])} is in no pack before it")
            packs.append(pack)
        for pack, part in zip(packs, graph.parts, strict=True):
            if pack.entry not in opened:
                pack.resolve_by(partial(_rows_before, again, _family(state), part.first))
        return cls(transport, state, packs, graph, texts)

    def only(self, packs: Sequence[OpenPack]) -> Snapshot:
        """Return this snapshot with only the given packs, and the whole graph."""
        return Snapshot(self.transport, self.state, packs, self.graph, self.texts)

    def in_python(self) -> Snapshot:
        """Return this snapshot without its native reader, which would read each index again. It is for reading few
        records."""
        made = self.only(self.packs)
        made._native = None
        return made

    @property
    def extent(self) -> tuple[int, int]:
        """The number of records in all packs, and the bytes of the packs."""
        packs = self.state.packs
        return sum(pack.records for pack in packs), sum(pack.length for pack in packs)

    def continues(self, before: Snapshot) -> bool:
        """Tell whether the snapshot's revisions begin with those of an earlier snapshot. Packs with equal entries are
        the same. In other packs, the ids and lengths of the segments are compared: see `place_of`."""
        count = before.graph.count
        if _family(before.state) != _family(self.state) or self.graph.count < count:
            return False
        both = zip(self.packs, before.packs, strict=False)
        same = sum(pack.index.segments for pack, _ in takewhile(lambda pair: pair[0].entry == pair[1].entry, both))
        return all(map(eq, self._segments(same), before._segments(same)))

    def _segments(self, first: int) -> Iterator[tuple[RevisionId, int]]:
        """Yield the id and the length in bytes of each segment from an ordinal on."""
        for pack, part in zip(self.packs, self.graph.parts, strict=True):
            begin, index = max(first - part.first, 0), pack.index
            lengths = (stop - start for start, stop in pairwise(index.segment_offsets[begin:]))
            yield from zip(index.revisions(begin), lengths, strict=True)

    def ordinal(self, revision: RevisionId) -> int | None:
        """Return the global ordinal of a revision; None if it is not stored."""
        return self.graph.ordinal(revision)

    def revision(self, ordinal: int) -> RevisionId:
        """Return the id of the revision with a global ordinal."""
        return self.graph.revision(ordinal)

    def runs(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[OpenPack, int, int]]:
        """Yield the runs of bytes that have the segments in half-open ranges of global ordinals. A run is a pack, and
        the offsets of the run's start and end in the pack."""
        for start, stop in ranges:
            while start < stop:
                number = self.graph.part_at(start)
                part = self.graph.parts[number]
                last = min(stop, part.first + part.count)
                offsets = self.packs[number].index.segment_offsets
                yield self.packs[number], offsets[start - part.first], offsets[last - part.first]
                start = last

    def size(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Return the size in bytes of the segments in half-open ranges of global ordinals."""
        return sum(stop - start for _, start, stop in self.runs(ranges))

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> SegmentReader:
        """Return a reader of the segments in half-open ranges of global ordinals, as stored."""
        ranges = tuple(ranges)
        return SegmentReader(self.runs(ranges), sum(stop - start for start, stop in ranges))

    def place_of(self, index: Index) -> tuple[PackEntry, int] | None:
        """Find the pack that has all segments of an index, consecutively. Return the pack and the difference of the
        offsets; None if no pack has them. Lengths are compared, too: after a backup is restored, a revision may be
        pushed again with other content."""
        ordinal = self.graph.ordinal(index.revision(0)) if index.segments else None
        if ordinal is None:
            return None
        number = self.graph.part_at(ordinal)
        first = ordinal - self.graph.parts[number].first
        here = self.packs[number].index
        shift = here.segment_offsets[first] - index.segment_offsets[0]
        if first + index.segments > here.segments or any(
            here.revision(first + segment) != index.revision(segment)
            or here.segment_offsets[first + segment + 1] != index.segment_offsets[segment + 1] + shift
            for segment in range(index.segments)
        ):
            return None
        return self.packs[number].entry, shift

    def first_parent(self, ordinal: int) -> int | None:
        """Return the ordinal of a revision's first parent; None if it has no parent, or its first parent is a ghost."""
        stored = self.graph.parents(ordinal)
        if not stored or self.parents(ordinal)[0].absent:
            return None
        return stored[0]

    def first_parents(self, ordinals: Sequence[int]) -> dict[int, int | None]:
        """Return the `first_parent` of several revisions. Their headers are read together."""
        found: dict[int, int | None] = {}
        asked = [ordinal for ordinal in ordinals if self.graph.parents(ordinal)]
        runs = [run for ordinal in asked for run in self.runs(((ordinal, ordinal + 1),))]
        read = remote.read_across([(pack.reader, start, min(HEADER, stop - start)) for pack, start, stop in runs])
        for ordinal, header in zip(asked, read, strict=True):
            try:
                parents = decode_parents(header, 0)
            except (Malformed, LimitExceeded):  # The header is longer, or damaged.
                parents = self.parents(ordinal)
            found[ordinal] = None if not parents or parents[0].absent else self.graph.parents(ordinal)[0]
        return {ordinal: found.get(ordinal) for ordinal in ordinals}

    def parents(self, ordinal: int) -> tuple[Parent, ...]:
        """Return the parents of a revision, including absent ones, which the graph does not have."""
        if not system_of(self.state.vcs).ghosts:
            return tuple([Parent(self.revision(parent)) for parent in self.graph.parents(ordinal)])
        ((pack, start, stop),) = self.runs(((ordinal, ordinal + 1),))
        size = min(HEADER, stop - start)
        while True:
            try:
                parents = decode_parents(pack.reader.read(start, size), 0)
                if sum(not parent.absent for parent in parents) != len(self.graph.parents(ordinal)):
                    raise CorruptFile(pack.path, start, "segment header: its parents differ from those in the index")
                return parents
            except (Malformed, LimitExceeded) as error:
                if size == stop - start or isinstance(error, LimitExceeded):
                    raise CorruptFile(pack.path, start, f"segment header: {error}") from error
                size = min(size * 16, stop - start)


def _family(state: State) -> tuple[object, ...]:
    return state.incarnation, state.kinds


Reopen = Callable[[], Snapshot | None]
"""A function that opens the current state of the repository. It returns None if the repository no longer exists."""


def _seek(again: Reopen, family: tuple[object, ...], entry: PackEntry, index: Index) -> tuple[PackEntry, int] | None:
    """Find the segments of a deleted pack (`open_pack.Seek`). `family`: the `_family` of the state that named the
    pack."""
    now = again()
    if now is not None and _family(now.state) == family:
        if entry in now.state.packs:
            return None
        place = now.place_of(index)
        if place is not None:
            return place
    raise RepositoryChanged(pack_path(entry.name))


def _rows_before(again: Reopen, family: tuple[object, ...], count: int) -> Resolve:
    """Return a function that finds the rows of records in the first `count` revisions. `family`: as in `_seek`."""
    now = again()
    if now is None or _family(now.state) != family:
        raise RepositoryChanged(LOG)
    packs = [pack for pack, part in zip(now.packs, now.graph.parts, strict=True) if part.first < count]
    earlier = now.only(packs)

    def resolve(kind: int, key: Key) -> Row | None:
        found = earlier.first(kind, key)
        if found is None or found.ordinal >= count:
            return None
        return Row(found.depth, found.chain_kib, found.lineage)

    return resolve


class OpenedState(NamedTuple):
    """The head of a repository, and the snapshot of its state; None as snapshot if the repository does not exist."""

    head: Head
    snapshot: Snapshot | None


class States:
    """Opens the states of one repository and keeps the newest snapshot. Several threads may use it at once."""

    def __init__(self, log: LogView, texts: TextCache) -> None:
        self._log = log
        self._texts = texts
        self._guard = threading.Lock()
        self.latest: Snapshot | None = None
        """The newest snapshot that was opened."""
        self._brought: dict[str, bytes] = {}
        """The contents, by path, of the small files of the pack that this process wrote last."""
        self._again = reader(log, texts, self)

    def forget(self) -> None:
        """Drop the newest snapshot, so that the next request opens all files again."""
        with self._guard:
            self.latest = None

    def look(self, perform: Perform | None = None) -> Head:
        """Return the newest head; `NOWHERE` if no repository was ever created. `perform`: as in `Log.look`."""
        try:
            head = self._log.look(perform)
        except NoSuchRepository:
            return NOWHERE
        if head.damage is not None and not head.state.exists:
            raise head.damage
        return head

    def read(self, look: Head | None = None) -> OpenedState:
        """Open the state in `look`. If `look` is None, or a file that the state names is missing, open the newest
        state."""
        for tries_left in range(TRIES, 0, -1):
            latest = look or self.look()
            look = None
            try:
                return OpenedState(latest, self.open(latest.live))
            except NoSuchFile:
                if tries_left == 1:
                    raise
        raise AssertionError("the last try returns or raises")

    def bring(self, files: Mapping[str, bytes]) -> None:
        """Store the contents of files that the newest record names, so that the next snapshot need not read them."""
        with self._guard:
            self._brought = dict(files)

    def open(self, state: State | None) -> Snapshot | None:
        """Return the snapshot of a state.

        Raises:
            NoSuchFile: a file that the state names is missing, so there is probably a newer state.
        """
        if state is None or not state.exists:
            return None
        with self._guard:
            latest = self.latest
        if latest is None or latest.state.hash != state.hash:
            latest = Snapshot.open(self._log.folder, state, latest, self._texts, self._again, self._brought)
            with self._guard:
                # Never replace it by an older snapshot, which a slower thread may have opened.
                kept = self.latest
                if kept is None or kept.state.incarnation != state.incarnation or kept.state.version <= state.version:
                    self.latest = latest
        return latest


def reader(log: LogView, texts: TextCache, states: States | None = None) -> Reopen:
    """Return a function that opens the newest state. It reuses the snapshot of `states`, to which it refers weakly: a
    strong reference would form a cycle and keep the files of an unused repository open until a garbage collection."""
    known = None if states is None else weakref.ref(states)

    def again() -> Snapshot | None:
        living = None if known is None else known()
        return (living or States(log, texts)).read().snapshot

    return again
