"""Answers whether a revision descends from another, among the revisions of one stream and the stored ones.

The stored revisions have the lower ordinals, then those of the stream in order. A parent's ordinal is always lower than
its child's.

The problem: a table of all ancestors is quadratic, and so is a walk for each question. The solution takes a few steps
for each parent of a revision:

1. Each revision keeps one long jump along its line of first parents (skew-binary, as Myers described it). So finding a
   revision on the line takes the logarithm of the line's length. Most questions end here, or at the revision itself.
2. Else the lines of the second parents of the next merges (`MERGES`) down the line are searched. Then the ancestors in
   the stream of the first merge are marked downward, only as far as needed, and the marks are kept. If any of several
   revisions will do, as those that introduced a record, the first few (`ASIDE`) are searched for on lines before
   anything is marked.
3. Stored ancestors are marked downward in the same way, from the stored revisions that the stream's revisions are based
   on. Revisions based on the same stored ones share one `_Front`, and so its marks.

Marks are bounded in bytes (`MARKS_KEPT`). Each step of a walk is charged, so that a stream that makes walks long ends
in an error and not in minutes of work.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from smartserver.records.cache import Cache
from smartserver.records.charge import Charge, free
from smartserver.store.allowance import CHECK
from smartserver.store.graph import Graph
from smartserver.store.index import OUTSIDE

MARKS_KEPT = 8 << 20
"""The most bytes of marks that are kept. A walk has one byte for each revision: 64 walks over 125,000 revisions fit."""

FRONT_LIMIT = 16
"""The most stored revisions of a `_Front` that are kept as a set. Such a set costs no more than the edges from which it
was built."""

MERGES = 8
"""The number of merges whose second parents' lines are searched before anything is marked: a search takes 2
microseconds, a walk 500. Without such searches, a check of 62,525 revisions takes 14 % longer; 64 merges are no faster
than 8."""

ASIDE = 8
"""The number of revisions that are searched for on lines before the first search by marks. With 4,000 copies of a
record, 4,000 searches by marks would take too long."""

QUESTION = 4
"""Steps charged for one query, which takes 2 microseconds, in addition to the steps of its walk."""

NONE = 0xFFFFFFFF
"""The value in a column that stands for no revision."""


@dataclass(eq=False, slots=True)
class _Front:
    """The stored revisions on which a revision of the stream is based: `ordinals`, and all those of the `joined`
    fronts."""

    ordinals: frozenset[int] | array[int]
    """The front's own revisions: a set of a few, or a sorted array of many."""
    joined: tuple[_Front, ...] = ()

    def names(self, ordinal: int) -> bool:
        """Tell whether a revision is one of the front's own."""
        if isinstance(self.ordinals, frozenset):
            return ordinal in self.ordinals
        at = bisect.bisect_left(self.ordinals, ordinal)
        return at < len(self.ordinals) and self.ordinals[at] == ordinal


_NO_FRONT = _Front(frozenset())


class _Marks:
    """The ancestors of some revisions, marked from the top down as far as needed so far."""

    def __init__(self, starts: Collection[int], parents: Callable[[int, int, bytearray], int]) -> None:
        """`parents`: a function that marks the parents of the marked revisions from the second argument (exclusive)
        down to the first, and returns the ordinal at which it stopped."""
        self._marks = bytearray(max(starts, default=-1) + 1)
        for ordinal in starts:
            self._marks[ordinal] = 1
        self._low = len(self._marks)  # The parents of all marked revisions at or above it are marked.
        self._parents = parents

    def __len__(self) -> int:
        """Return the size of the marks in bytes."""
        return len(self._marks)

    def has(self, ordinal: int) -> bool:
        if ordinal >= len(self._marks):
            return False
        while ordinal < self._low:
            self._low = self._parents(ordinal, self._low, self._marks)
        return self._marks[ordinal] == 1


class Ancestry:
    """The graph of one stream on top of the stored graph. It must not be used by several threads at once."""

    def __init__(self, graph: Graph, charge: Charge = free) -> None:
        self.stored = graph.count
        """The number of stored revisions: the ordinal of the first revision of the stream."""
        self._graph = graph
        self._charge = charge
        self._uncharged = 0
        self._starts = array("I", (0,))
        """The offset in `_entries` of the parents in the stream, for each revision of the stream."""
        self._entries = array("I")
        self._first = array("I")
        """For each revision, its first parent in the stream; `NONE` if no parent is in the stream."""
        self._jump = array("I")
        """An ancestor of each revision further down its line of first parents."""
        self._depth = array("I")
        """The length of each revision's line of first parents."""
        self._merge = array("I")
        """For each revision, the first revision on its line, itself included, with several parents in the stream."""
        self._fronts: list[_Front] = []
        # Marks over the limit cost no more than the limit: they are kept alone.
        self._marks = Cache[object, _Marks](MARKS_KEPT, lambda marks: min(len(marks), MARKS_KEPT))

    def __len__(self) -> int:
        """Return the number of revisions, including stored ones."""
        return self.stored + len(self._first)

    def add(self, parents: Sequence[int]) -> int:
        """Append a revision of the stream, whose parents are stored or were appended before. Return its ordinal."""
        index = len(self._first)
        above = [parent - self.stored for parent in parents if parent >= self.stored]
        self._entries.extend(above)
        self._starts.append(len(self._entries))
        first = above[0] if above else NONE
        jump, depth = index, 0
        if above:
            depth = self._depth[first] + 1
            near = self._jump[first]
            far = self._jump[near]
            # Two jumps of one length become one of twice that.
            jump = far if self._depth[first] - self._depth[near] == self._depth[near] - self._depth[far] else first
        self._first.append(first)
        self._jump.append(jump)
        self._depth.append(depth)
        self._merge.append(index if len(above) > 1 else self._merge[first] if above else NONE)
        self._fronts.append(self._join([parent for parent in parents if parent < self.stored], above))
        self._count(len(parents) + 1)
        return self.stored + index

    def reaches_any(self, ordinal: int, ordinals: Iterable[int]) -> bool:
        """Tell whether a revision is or descends from any of `ordinals`."""
        is_near, is_marked = self._is_near_ancestor, self._is_marked_ancestor
        aside: list[int] = []
        room = ASIDE
        for ancestor in ordinals:
            near = is_near(ancestor, ordinal)
            if near:
                return True
            if near is None:
                aside.append(ancestor)
                if len(aside) >= room:
                    if any(is_marked(far, ordinal) for far in aside):
                        return True
                    aside.clear()
                    room = 1
        return any(is_marked(far, ordinal) for far in aside)

    def is_stored_below(self, front: Iterable[int], ordinals: Iterable[int]) -> bool:
        """Tell whether a revision of `front` is or descends from any of `ordinals`; all are stored."""
        named = frozenset(front)
        for ancestor in ordinals:
            self._count(QUESTION)
            if ancestor in named or self._stored_marks(named).has(ancestor):
                return True
        return False

    def _is_near_ancestor(self, ancestor: int, ordinal: int) -> bool | None:
        """Tell whether `ordinal` is or descends from `ancestor`; return None if only marks can answer this."""
        self._count(QUESTION)
        if ancestor >= ordinal:
            return ancestor == ordinal
        index, wanted = ordinal - self.stored, ancestor - self.stored
        if wanted < 0:
            return True if index >= 0 and self._fronts[index].names(ancestor) else None
        if self._on_line(wanted, index):
            return True
        merge = self._merge[index]
        if merge == NONE or wanted > merge:
            return False
        for _ in range(MERGES):
            start = self._starts[merge]
            if self._on_line(wanted, self._entries[start + 1]):
                return True
            merge = self._merge[self._entries[start]]
            if merge == NONE or wanted > merge:
                break
        return None

    def _is_marked_ancestor(self, ancestor: int, ordinal: int) -> bool:
        """Tell whether `ordinal` descends from `ancestor`, after `_is_near_ancestor` returned None."""
        index = ordinal - self.stored
        if index < 0:
            return self._stored_marks(frozenset((ordinal,))).has(ancestor)
        if ancestor < self.stored:
            return self._stored_marks(self._fronts[index]).has(ancestor)
        merge = self._merge[index]
        return self._kept(merge, lambda: _Marks((merge,), self._mark_parents)).has(ancestor - self.stored)

    def _on_line(self, wanted: int, index: int) -> bool:
        """Tell whether one revision of the stream is on the line of first parents of another."""
        depth, jumps, depths = self._depth[wanted], self._jump, self._depth
        steps = 1
        while depths[index] > depth:
            index = jumps[index] if depths[jumps[index]] >= depth else self._first[index]
            steps += 1
        self._count(steps)
        return index == wanted

    def _join(self, below: Collection[int], above: Sequence[int]) -> _Front:
        fronts = list(dict.fromkeys([self._fronts[parent] for parent in above]))
        if not below and len(fronts) < 2:
            return fronts[0] if fronts else _NO_FRONT  # Nearly always, it has the front of its only parent.
        if not any(front.joined for front in fronts):
            ordinals = frozenset(below).union(*(front.ordinals for front in fronts))
            if len(ordinals) <= FRONT_LIMIT:
                return next((front for front in fronts if front.ordinals == ordinals), None) or _Front(ordinals)
        return _Front(array("I", sorted(below)), tuple(fronts))

    def _stored_marks(self, front: _Front | frozenset[int]) -> _Marks:
        """Return the marks of the ancestors of a front. If the front is a set, the set itself is the key of the
        cache."""
        if not isinstance(front, _Front):
            return self._kept(front, lambda: _Marks(front, self._mark_stored_parents))
        if isinstance(front.ordinals, frozenset):
            return self._stored_marks(front.ordinals)
        return self._kept(front, lambda: _Marks(self._collected(front), self._mark_stored_parents))

    def _collected(self, front: _Front) -> set[int]:
        """Return all stored revisions of a front and of the fronts joined in it."""
        found: set[int] = set()
        seen = {front}
        todo = [front]
        while todo:
            joined_front = todo.pop()
            found.update(joined_front.ordinals)
            self._count(len(joined_front.ordinals))
            news = [joined for joined in joined_front.joined if joined not in seen]
            seen.update(news)
            todo += news
        return found

    def _kept(self, key: object, make: Callable[[], _Marks]) -> _Marks:
        found = self._marks.get(key)
        if found is None:
            found = make()
            self._count(len(found) >> 8)  # Clearing 256 bytes takes about as long as a step.
            self._marks.put(key, found)
        return found

    def _mark_parents(self, stop: int, low: int, marks: bytearray) -> int:
        starts, entries = self._starts, self._entries
        steps = 0
        while (low := marks.rfind(1, stop, low)) >= 0:
            start, end = starts[low], starts[low + 1]
            if end - start == 1:  # Nearly always; this saves making a slice.
                marks[entries[start]] = 1
            else:
                for entry in entries[start:end]:
                    marks[entry] = 1
            steps += 1 + end - start
            if steps > CHECK:
                self._count(steps)
                steps = 0
        self._count(steps)
        return stop

    def _mark_stored_parents(self, stop: int, low: int, marks: bytearray) -> int:
        """Mark parents downward to `stop`, or to the start of the current part of the graph."""
        part = self._graph.parts[self._graph.part_at(low - 1)]
        first, starts, entries, outside = part.first, part.starts, part.entries, part.outside
        stop = max(stop, first)
        steps = 0
        while (low := marks.rfind(1, stop, low)) >= 0:
            local = low - first
            start, end = starts[local], starts[local + 1]
            for entry in entries[start:end]:
                marks[outside[entry ^ OUTSIDE] if entry & OUTSIDE else first + entry] = 1
            steps += 1 + end - start
            if steps > CHECK:
                self._count(steps)
                steps = 0
        self._count(steps)
        return stop

    def _count(self, steps: int) -> None:
        """Count steps, and charge them once they exceed `CHECK`."""
        self._uncharged += steps
        if self._uncharged > CHECK:
            steps, self._uncharged = self._uncharged, 0
            self._charge(steps)
