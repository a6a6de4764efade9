"""The revision graph over all packs of a snapshot. It finds ancestors, and the revisions that a client still needs.

A revision's ordinal is its place in arrival order over all packs; repack never changes it, and a parent's ordinal is
always lower than its child's. So ancestry is a scan downward over marks, block by block, which skips unmarked
revisions. Absent parents are not in the graph.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from smartserver.records.announced import AnnouncedGraph, AnnouncedRevisions
from smartserver.records.charge import Charge, free
from smartserver.records.model import GraphNode, RevisionId
from smartserver.store.allowance import CHECK
from smartserver.store.index import OUTSIDE, Column, Index

BLOCK_BITS = 14
BLOCK = 1 << BLOCK_BITS
"""The number of ordinals whose marks are scanned at once. A scan over few revisions then takes microseconds in any
repository."""

_PART_SHIFT = 18
"""The bits of a block's number in its part; the part's number is above them. 2^31 revisions have 2^17 blocks."""
_BLOCK_MASK = (1 << _PART_SHIFT) - 1

_WANTED = 1
_HAD = 2


@dataclass(eq=False, slots=True)
class Part:
    """The revisions of one pack, or of one announcement: consecutive ordinals from `first`."""

    first: int
    count: int
    _starts: Sequence[int]
    """The offset of each revision's parents in `_entries`. It may be the column of an index."""
    _entries: Sequence[int]
    outside: Sequence[int]
    """The global ordinals of parents in earlier parts."""
    _by_id: Callable[[RevisionId], int | None]
    _revision: Callable[[int], RevisionId]

    @property
    def starts(self) -> Sequence[int]:
        """The offset of each revision's parents in `entries`, and the end of the last. At the first access, a column of
        an index is read whole, because walks need most of it, and kept in memory: four bytes for each number."""
        if isinstance(self._starts, Column):
            self._starts = self._starts[:]
        return self._starts

    @property
    def entries(self) -> Sequence[int]:
        """The parents of all revisions, encoded as in `Index.parents`."""
        if isinstance(self._entries, Column):
            self._entries = self._entries[:]
        return self._entries

    def find(self, revision: RevisionId) -> int | None:
        """Return the global ordinal of a revision; None if the part does not have it."""
        local = self._by_id(revision)
        return None if local is None else self.first + local

    def revision(self, ordinal: int) -> RevisionId:
        """Return the id at a global ordinal of this part."""
        return self._revision(ordinal - self.first)


def announced_graph(revisions: Sequence[GraphNode]) -> AnnouncedGraph | AnnouncedRevisions:
    """Return announced revisions as a collection that finds them by id."""
    return revisions if isinstance(revisions, (AnnouncedGraph, AnnouncedRevisions)) else AnnouncedRevisions(revisions)


class Graph:
    """An immutable graph. A graph with more revisions is a new object that shares its parts."""

    __slots__ = ("_firsts", "count", "parts")

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self.parts = tuple(parts)
        self._firsts = [part.first for part in parts]
        self.count = parts[-1].first + parts[-1].count if parts else 0

    def with_index(self, index: Index, reuse: Part | None = None) -> tuple[Graph, list[RevisionId]]:
        """Return this graph with the revisions of the next pack added. Also return those of the pack's outside parents
        that the graph lacks. `reuse`: the part of an earlier graph for this index, used if its ordinals are the
        same."""
        if reuse is not None and reuse.first == self.count:
            return Graph((*self.parts, reuse)), []
        outside = array("I")
        missing = []
        for revision in index.outside:
            ordinal = self.ordinal(revision)
            if ordinal is None:
                missing.append(revision)
            else:
                outside.append(ordinal)
        part = Part(
            self.count,
            index.segments,
            index.parent_starts,
            index.parent_entries,
            outside,
            index.segment_of,
            index.revision,
        )
        return Graph((*self.parts, part)), missing

    def with_announced(self, announced: Sequence[GraphNode], charge: Charge = free) -> tuple[Graph, list[RevisionId]]:
        """Return this graph with the announced revisions added that it lacks. Also return the missing parents: those
        not marked absent, not in this graph, and not announced before their child. `charge` is called with the steps
        taken."""
        listed = announced_graph(announced)
        new, local = array("I"), array("I")
        """`new`: the place in `listed` of each new revision. `local`: the number of each listed revision among the new
        ones; `OUTSIDE` if the revision is not new."""
        starts, entries, outside = array("I", (0,)), array("I"), array("I")
        missing: dict[RevisionId, None] = {}
        steps = 0
        for place, (revision, parents) in enumerate(listed):
            steps += 1 + len(parents)
            if steps > CHECK:
                charge(steps)
                steps = 0
            if listed.find(revision) != place or self.ordinal(revision) is not None:
                local.append(OUTSIDE)
                continue
            for parent in parents:
                if parent.absent:
                    continue
                before = listed.find(parent.id)
                if before is not None and before < place and local[before] != OUTSIDE:
                    entries.append(local[before])
                elif (stored := self.ordinal(parent.id)) is not None:
                    entries.append(OUTSIDE | len(outside))
                    outside.append(stored)
                else:
                    missing[parent.id] = None
            starts.append(len(entries))
            local.append(len(new))
            new.append(place)
        charge(steps)
        if not new:
            return self, list(missing)

        def find(revision: RevisionId) -> int | None:
            place = listed.find(revision)
            return None if place is None or local[place] == OUTSIDE else local[place]

        part = Part(self.count, len(new), starts, entries, outside, find, lambda number: listed.revision(new[number]))
        return Graph((*self.parts, part)), list(missing)

    @property
    def size(self) -> int:
        """The number of revisions plus the number of their parents."""
        return self.count + sum(len(part.entries) for part in self.parts)

    def part_at(self, ordinal: int) -> int:
        """Return the number of the part that has an ordinal."""
        if not 0 <= ordinal < self.count:
            raise IndexError(f"no revision has the ordinal {ordinal}, there are {self.count}")
        return bisect.bisect_right(self._firsts, ordinal) - 1

    def ordinal(self, revision: RevisionId) -> int | None:
        """Return the ordinal of a revision; None if it is not in the graph."""
        for part in reversed(self.parts):  # Callers mostly ask for new revisions.
            found = part.find(revision)
            if found is not None:
                return found
        return None

    def revision(self, ordinal: int) -> RevisionId:
        """Return the id at an ordinal."""
        return self.parts[self.part_at(ordinal)].revision(ordinal)

    def parents(self, ordinal: int) -> tuple[int, ...]:
        """Return the ordinals of a revision's parents, without absent ones."""
        part = self.parts[self.part_at(ordinal)]
        local = ordinal - part.first
        return tuple(
            part.outside[entry ^ OUTSIDE] if entry & OUTSIDE else part.first + entry
            for entry in part.entries[part.starts[local] : part.starts[local + 1]]
        )

    def is_ancestor(self, ancestor: int, ordinal: int, charge: Charge = free) -> bool:
        """Tell whether `ordinal` is or descends from `ancestor`."""
        if ancestor >= ordinal:
            return ancestor == ordinal
        return min(self._scan({ordinal: _WANTED}, lowest=ancestor, charge=charge)) == ancestor

    def missing(
        self, wants: Collection[int], haves: Collection[int], cut: Collection[int] = (), charge: Charge = free
    ) -> list[int]:
        """Return the result of `newest_first`, ascending."""
        found = list(self.newest_first(wants, haves, cut, charge))
        found.reverse()
        return found

    def newest_first(
        self, wants: Collection[int], haves: Collection[int], cut: Collection[int] = (), charge: Charge = free
    ) -> Iterator[int]:
        """Yield the ordinals of `wants` and their ancestors, without `haves` and their ancestors, descending. The walk
        is lazy. `cut`: revisions that the client lacks although it has a child of each; the walk from `haves` stops
        before them. `charge` is called with the steps taken, except for up to `CHECK` steps of an abandoned walk."""
        marks = dict.fromkeys(wants, _WANTED)
        for have in haves:
            marks[have] = marks.get(have, 0) | _HAD
        return self._scan(marks, frozenset(cut), charge=charge)

    def heads(self, ordinals: Collection[int], charge: Charge = free) -> list[int]:
        """Return those of `ordinals` that are not ancestors of another one, ascending."""
        below = {parent for ordinal in ordinals for parent in self.parents(ordinal)}
        return self.missing(ordinals, below, charge=charge)

    def _key(self, ordinal: int) -> int:
        """Return the number of the block that has an ordinal. Numbers ascend with the ordinals; no block spans two
        parts."""
        part = bisect.bisect_right(self._firsts, ordinal) - 1
        return part << _PART_SHIFT | (ordinal - self._firsts[part]) >> BLOCK_BITS

    def _scan(
        self, marks: Mapping[int, int], cut: frozenset[int] = frozenset(), lowest: int = 0, charge: Charge = free
    ) -> Iterator[int]:
        """Copy `marks` to all ancestors with ordinals from `lowest` on. Yield the ordinals that are wanted and not had,
        descending, until none is left. For speed this is one function with its state in local variables: a million
        revisions take 0.4 s."""
        pending: dict[int, dict[int, int]] = {}
        """The marks in blocks that were not scanned yet."""
        live = 0
        """The number of ordinals that are wanted, not had, and not visited yet."""
        for ordinal, mark in marks.items():
            pending.setdefault(self._key(ordinal), {})[ordinal] = mark
            live += mark == _WANTED
        # A cut revision turns from had to wanted when the scan reaches it, so the scan must reach it.
        lowest_cut = min(cut, default=self.count)
        steps = 0
        while pending:
            key = max(pending)
            here = pending.pop(key)
            part = self.parts[key >> _PART_SHIFT]
            first, starts, entries, outside = part.first, part.starts, part.entries, part.outside
            low = (key & _BLOCK_MASK) << BLOCK_BITS  # Local ordinal of the block's start.
            size = min(BLOCK, part.count - low)
            base = first + low
            if base + size <= lowest:
                break
            flags, queued = bytearray(size), bytearray(size)
            for ordinal, mark in here.items():
                flags[ordinal - base] = mark
                queued[ordinal - base] = 1
            end = max(0, lowest - base)
            at = size
            while True:
                if at > end and queued[at - 1]:
                    at -= 1
                else:
                    at = queued.rfind(1, end, at)
                    if at < 0:
                        break
                mark = flags[at]
                if mark == _WANTED:
                    live -= 1
                    yield base + at
                elif cut and base + at in cut:
                    mark &= _WANTED
                    if not mark:
                        continue
                    yield base + at
                start, final = starts[low + at], starts[low + at + 1]
                steps += final - start + 1
                if steps > CHECK:
                    charge(steps)
                    steps = 0
                while start < final:
                    parent = entries[start]
                    start += 1
                    if parent < OUTSIDE:
                        local = parent - low
                        if local >= 0:
                            old = flags[local]
                            if not old:
                                flags[local] = mark
                                queued[local] = 1
                                if mark == _WANTED:
                                    live += 1
                            elif old | mark != old:
                                if old == _WANTED:
                                    live -= 1
                                flags[local] = old | mark
                            continue
                        block = key & ~_BLOCK_MASK | parent >> BLOCK_BITS
                        parent += first
                    else:
                        parent = outside[parent ^ OUTSIDE]
                        block = self._key(parent)
                    there = pending.get(block)
                    if there is None:
                        there = pending[block] = {}
                    old = there.get(parent, 0)
                    if old | mark != old:
                        if mark == _WANTED and not old:
                            live += 1
                        elif old == _WANTED:
                            live -= 1
                        there[parent] = old | mark
                if not live and base + at <= lowest_cut:
                    charge(steps)
                    return
        charge(steps)
