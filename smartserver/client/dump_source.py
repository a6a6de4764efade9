"""`DumpSource`: a dump in a file as the source of a push. Only what the target lacks is sent, a long dump in parts.

The file is read twice: first whole, with its hashes, so that nothing of a damaged dump is sent and its graph is known,
then as far as the target lacks it. The second time the target proves each record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from smartserver.client.body import OnSent
from smartserver.client.copy import CannotCopy
from smartserver.client.dump_file import DumpReader
from smartserver.errors import LimitExceeded, shown
from smartserver.records.keys import ABSENT, KeyTable
from smartserver.records.model import GraphNode, Key, Parent, RevisionId
from smartserver.records.segment import SegmentStream, decode_revision
from smartserver.records.varint import Malformed

PART: Final = 64 << 20
"""Bytes of revisions in one request, or one revision that is larger: what an interrupted load loses at most."""


class DumpSource:
    """The revisions of a dump that can be read again, in some 100 bytes each; of a history without ghosts."""

    def __init__(self, read: DumpReader, checked: OnSent) -> None:
        """Read it whole. `checked` is told how far that is: the bytes, twice, and the bytes in all.

        Raises:
            BadDump: it is damaged.
        """
        self.distrusted: Collection[RevisionId] = ()
        """What the target once had and has not now: of these a plan takes no notice."""
        self.size = read.header.size
        """Bytes of all segments."""
        self._read = read
        self._ids = KeyTable()
        """Of the revisions and of all parents."""
        self._order = array("I")
        """The numbers of the revisions' ids, parents before children."""
        self._ends = array("Q", [0])
        """Where the segments end, in bytes of all; the first one begins at 0."""
        self._parents, self._parent_ends = array("I"), array("Q", [0])
        self._blocks = array("Q"), array("Q")
        """Where the content of each block begins: in bytes of all segments, and in the file."""
        stream = SegmentStream(read.header.kinds, graph_first=False)
        size = 0
        try:
            for content in read:
                self._blocks[0].append(size)
                self._blocks[1].append(read.content_at)
                size += len(content)
                checked(size, size, self.size)
                stream.feed(content)
                for segment in stream.segments():
                    self._add(segment)
            stream.finish()
        except (Malformed, LimitExceeded) as wrong:
            raise read.damaged(read.content_at, f"revision {len(self)} cannot be read: {wrong}") from wrong
        if len(self) != read.header.segments:
            raise read.damaged(read.content_at, f"{len(self)} revisions, the header says {read.header.segments}")
        self._had = bytearray(len(self._ids))
        """Of each id, whether the target has that revision."""

    def _add(self, segment: bytes) -> None:
        revision, parents = decode_revision(segment, 0)
        self._order.append(self._ids.number(revision))
        self._ends.append(self._ends[-1] + len(segment))
        self._parents.extend([self._ids.number(parent.id) for parent in parents])
        self._parent_ends.append(len(self._parents))

    def __len__(self) -> int:
        return len(self._order)

    def mark(self, revisions: Iterable[RevisionId]) -> bool:
        """Note that the target has revisions, with all ancestors; whether one was not known of."""
        had = self._reached(revisions)
        if had is None:
            return False
        self._had = had
        return True

    def lacking(self) -> DumpPart:
        """What the target lacks."""
        return DumpPart(self, [number for number, known in enumerate(self._order) if not self._had[known]])

    def without(self, numbers: Sequence[int], haves: Iterable[RevisionId]) -> Sequence[int]:
        """The numbers of those revisions that `haves` do not reach."""
        had = self._reached(each for each in haves if each not in self.distrusted)
        return numbers if had is None else [number for number in numbers if not had[self._order[number]]]

    def _reached(self, revisions: Iterable[RevisionId]) -> bytearray | None:
        """What the target has where it has these, too; None where that is no more."""
        found = [number for each in revisions if (number := self._ids.find(each)) != ABSENT and not self._had[number]]
        if not found:
            return None
        had = self._had.copy()
        for number in found:
            had[number] = 1
        starts = self._parent_ends
        for at in range(len(self) - 1, -1, -1):
            if had[self._order[at]]:
                for parent in self._parents[starts[at] : starts[at + 1]]:
                    had[parent] = 1
        return had

    def node(self, number: int) -> GraphNode:
        """A revision and its parents."""
        parents = self._parents[self._parent_ends[number] : self._parent_ends[number + 1]]
        return GraphNode(self._ids.key(self._order[number]), tuple([Parent(self._ids.key(each)) for each in parents]))

    def length(self, number: int) -> int:
        """Bytes of a segment."""
        return self._ends[number + 1] - self._ends[number]

    def segment(self, number: int) -> bytes:
        """A segment, read from the file.

        Raises:
            BadDump: the file became shorter.
        """
        begins, places = self._blocks
        at, stop = self._ends[number], self._ends[number + 1]
        block = bisect_right(begins, at) - 1
        pieces = []
        while at < stop:
            end = begins[block + 1] if block + 1 < len(begins) else self.size
            pieces.append(self._read.read_at(places[block] + at - begins[block], min(stop, end) - at))
            at, block = end, block + 1
        return b"".join(pieces)


class DumpPart:
    """Some revisions of a dump, in its order: a `PushSource`, and its plan."""

    def __init__(self, source: DumpSource, numbers: Sequence[int]) -> None:
        self._source = source
        self._numbers = numbers
        self.size = sum(map(source.length, numbers))
        """Bytes of the segments."""

    def __len__(self) -> int:
        return len(self._numbers)

    @cached_property
    def graph(self) -> Sequence[GraphNode]:
        """As of any plan."""
        return [self._source.node(number) for number in self._numbers]

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> DumpPart:
        """What `haves` do not reach, whatever the tips are: a dump has only what its refs and maps reach."""
        left = self._source.without(self._numbers, haves)
        return self if left is self._numbers else DumpPart(self._source, left)

    def segments(self) -> Iterator[bytes]:
        """Each as it lies.

        Raises:
            BadDump: the file became shorter.
        """
        return map(self._source.segment, self._numbers)

    def without_bases(self, keys: Collection[Key]) -> DumpPart:
        """There is no such plan: what is dumped rests on what its ancestors brought.

        Raises:
            CannotCopy: always.
        """
        raise CannotCopy(f"the other side lacks {shown(min(keys))} though it has what brought it: verify it")

    def spaced(self, count: int) -> list[RevisionId]:
        """So many of the revisions, or fewer, at even distances."""
        step = -(-len(self) // count)
        return [self._source.node(number).revision for number in self._numbers[::step]]

    def parts(self, most: int) -> list[DumpPart]:
        """The same in parts of at most so many bytes, or one larger revision; one part, where there is nothing."""
        cuts, size = [0], 0
        for at, number in enumerate(self._numbers):
            length = self._source.length(number)
            if size and size + length > most:
                cuts.append(at)
                size = 0
            size += length
        stops = [*cuts[1:], len(self)]
        return [DumpPart(self._source, self._numbers[start:stop]) for start, stop in zip(cuts, stops, strict=True)]
