"""Who descends from whom, among the revisions of one stream and those stored before it.

Ordinals: the stored revisions first, then those of the stream in order; a parent's is always lower than its child's.
In the stream a revision's ancestors are the bits of one integer (50,000 revisions: 0.1 s in all), kept while they fit
in a bound and computed anew after that; in the store they are marked downward from where the stream rests on it, no
further than asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

from smartserver.store.graph import Graph
from smartserver.store.index import OUTSIDE

BITS_KEPT = 32 << 20
"""Bytes of ancestor bits kept: the live frontier of a million revisions is some hundred of them, 125 KB each."""

SCANS_KEPT = 8
"""Marked ancestries of stored revisions kept, a byte a stored revision each."""

FRONT_LIMIT = 16
"""Stored revisions a frontier may name before those that descend from one another are sorted out."""


class _Front:
    """The stored revisions a revision of the stream rests on, itself or through its ancestors."""

    __slots__ = ("limit", "ordinals")

    def __init__(self, ordinals: frozenset[int], limit: int = FRONT_LIMIT) -> None:
        self.ordinals = ordinals
        self.limit = limit


class _Scan:
    """The stored ancestors of a frontier, marked from the top down as far as anyone asked."""

    def __init__(self, graph: Graph, front: Collection[int]) -> None:
        self._graph = graph
        self._marks = bytearray(max(front, default=-1) + 1)
        for ordinal in front:
            self._marks[ordinal] = 1
        self._low = len(self._marks)  # Everything marked at or above it has marked its parents.

    def add(self, ordinal: int) -> None:
        """Mark one more, lower than all that were marked first."""
        self._marks[ordinal] = 1
        self._low = max(self._low, ordinal + 1)

    def has(self, ordinal: int) -> bool:
        marks = self._marks
        if ordinal >= len(marks):
            return False
        while ordinal < self._low:
            self._mark_parents(max(0, ordinal))
        return marks[ordinal] == 1

    def _mark_parents(self, stop: int) -> None:
        """Go on downward to `stop`, or to where the part of the graph ends that it is in."""
        part = self._graph.parts[self._graph.part_at(self._low - 1)]
        marks, first, starts, entries, outside = self._marks, part.first, part.starts, part.entries, part.outside
        stop = max(stop, first)
        low = self._low
        while (low := marks.rfind(1, stop, low)) >= 0:
            local = low - first
            for entry in entries[starts[local] : starts[local + 1]]:
                marks[outside[entry ^ OUTSIDE] if entry & OUTSIDE else first + entry] = 1
        self._low = stop


class Reach:
    """A revision and its ancestors."""

    __slots__ = ("_ancestry", "_bits", "_front", "_scan")

    def __init__(self, ancestry: Ancestry, bits: int, front: frozenset[int]) -> None:
        self._ancestry = ancestry
        self._bits = bits
        self._front = front
        self._scan: _Scan | None = None

    def has(self, ordinal: int) -> bool:
        """Whether that revision is among them."""
        above = ordinal - self._ancestry.stored
        if above >= 0:
            return self._bits >> above & 1 == 1
        if self._scan is None:
            self._scan = self._ancestry.scan(self._front)
        return self._scan.has(ordinal)


class Ancestry:
    """The graph of one stream over the stored one; not for several threads at once."""

    def __init__(self, graph: Graph, *, bits_kept: int = BITS_KEPT) -> None:
        self.stored = graph.count
        """How many revisions lie below those of the stream."""
        self._graph = graph
        self._parents: list[tuple[int, ...]] = []
        self._fronts: list[_Front] = []
        self._bits: OrderedDict[int, int] = OrderedDict()
        self._bits_size = 0
        self._bits_kept = bits_kept
        self._scans: OrderedDict[frozenset[int], _Scan] = OrderedDict()

    def __len__(self) -> int:
        """How many revisions, stored ones included."""
        return self.stored + len(self._parents)

    def add(self, parents: Sequence[int]) -> int:
        """Append a revision of the stream, its parents stored or appended before, and give its ordinal."""
        index = len(self._parents)
        above = tuple(parent - self.stored for parent in parents if parent >= self.stored)
        below = frozenset(parent for parent in parents if parent < self.stored)
        self._parents.append(above)
        self._fronts.append(self._join(below, above))
        bits = 1 << index
        for parent in above:
            bits |= self._bits_of(parent)
        self._keep(index, bits)
        return self.stored + index

    def reach(self, ordinal: int) -> Reach:
        """That revision and its ancestors."""
        index = ordinal - self.stored
        if index < 0:
            return Reach(self, 0, frozenset((ordinal,)))
        return Reach(self, self._bits_of(index), self._fronts[index].ordinals)

    def is_ancestor(self, ancestor: int, ordinal: int) -> bool:
        """Whether `ordinal` is or descends from `ancestor`."""
        return ancestor == ordinal or (ancestor < ordinal and self.reach(ordinal).has(ancestor))

    def scan(self, front: frozenset[int]) -> _Scan:
        """The marked ancestry of stored revisions."""
        found = self._scans.get(front)
        if found is None:
            found = self._scans[front] = _Scan(self._graph, front)
            if len(self._scans) > SCANS_KEPT:
                self._scans.popitem(last=False)
        else:
            self._scans.move_to_end(front)
        return found

    def _join(self, below: frozenset[int], above: tuple[int, ...]) -> _Front:
        fronts = [self._fronts[parent] for parent in above]
        if not below and fronts and all(front is fronts[0] for front in fronts):
            return fronts[0]  # Nearly always: the child rests on what its parent rests on.
        joined = below.union(*(front.ordinals for front in fronts))
        limit = max((front.limit for front in fronts), default=FRONT_LIMIT)
        if len(joined) <= limit:
            return _Front(joined, limit)
        newest, *rest = sorted(joined, reverse=True)
        heads, covered = [newest], _Scan(self._graph, (newest,))
        for ordinal in rest:
            if not covered.has(ordinal):
                heads.append(ordinal)
                covered.add(ordinal)
        return _Front(frozenset(heads), max(FRONT_LIMIT, 2 * len(heads)))

    def _bits_of(self, index: int) -> int:
        bits = self._bits.get(index)
        if bits is not None:
            self._bits.move_to_end(index)
            return bits
        marks = bytearray(index + 1)
        marks[index] = 1
        packed = bytearray((index >> 3) + 1)
        at = index
        while at >= 0:
            packed[at >> 3] |= 1 << (at & 7)
            for parent in self._parents[at]:
                marks[parent] = 1
            at = marks.rfind(1, 0, at)
        bits = int.from_bytes(packed, "little")
        self._keep(index, bits)
        return bits

    def _keep(self, index: int, bits: int) -> None:
        self._bits[index] = bits
        self._bits_size += (index >> 3) + 32
        while self._bits_size > self._bits_kept and len(self._bits) > 1:
            dropped, _ = self._bits.popitem(last=False)
            self._bits_size -= (dropped >> 3) + 32
