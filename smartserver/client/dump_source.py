"""`DumpSource`: a dump in a file as the source of a push. What the target has is not sent; a long dump goes in parts.

The file is read twice: first whole, so that no byte of a damaged dump is sent and its graph is known, then as far as
the target lacks it. The second time its hashes are not looked at: the server proves each record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Final

from smartserver.client.copy import CannotCopy
from smartserver.client.dump_file import BadDump, DumpReader
from smartserver.errors import LimitExceeded, shown
from smartserver.records.model import GraphNode, Key, RevisionId
from smartserver.records.segment import SegmentStream, decode_revision
from smartserver.records.varint import Malformed

PART: Final = 64 << 20
"""Bytes of revisions that a request brings, the last one's apart: what an interrupted load loses at most."""


class DumpSource:
    """A `PushSource`: all revisions of a dump that can be read again."""

    def __init__(self, read: DumpReader, name: str) -> None:
        """Read it whole. `name`: what the user calls it.

        Raises:
            BadDump: it is damaged.
        """
        self.graph: list[GraphNode] = []
        """Its revisions, parents before children."""
        self.stored: set[RevisionId] = set()
        """What the target is known to have, with all ancestors."""
        self.read = read
        self._ends = array("Q", [0])
        """Where the segments end, in bytes of all; the first one begins at 0."""
        self._blocks = array("Q"), array("Q")
        """Where the content of each block begins: in bytes of all segments, and in the file."""
        stream = SegmentStream(read.header.kinds, graph_first=False)
        size = 0
        try:
            for content in read:
                for places, place in zip(self._blocks, (size, read.content_at), strict=True):
                    places.append(place)
                size += len(content)
                stream.feed(content)
                for segment in stream.segments():
                    self.graph.append(decode_revision(segment, 0))
                    self._ends.append(self._ends[-1] + len(segment))
            stream.finish()
        except (Malformed, LimitExceeded) as wrong:
            raise BadDump(f"{name} is damaged: revision {len(self.graph)} cannot be read: {wrong}") from wrong
        self._numbers = {node.revision: number for number, node in enumerate(self.graph)}

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> DumpPlan:
        """What the target lacks, of all revisions: a dump has none that its refs and maps do not reach."""
        had = bytearray(len(self.graph))
        for revision in (*haves, *self.stored):
            number = self._numbers.get(revision)
            if number is not None:
                had[number] = 1
        for number in range(len(had) - 1, -1, -1):
            if had[number]:
                for parent in self.graph[number].parents:
                    if not parent.absent and parent.id in self._numbers:
                        had[self._numbers[parent.id]] = 1
        return DumpPlan(self, [number for number, known in enumerate(had) if not known])

    def size(self, number: int) -> int:
        """Bytes of a segment."""
        return self._ends[number + 1] - self._ends[number]

    def segment(self, number: int) -> bytes:
        """A segment, read from the file."""
        begins, places = self._blocks
        at, stop = self._ends[number], self._ends[number + 1]
        block = bisect_right(begins, at) - 1
        pieces = []
        while at < stop:
            end = begins[block + 1] if block + 1 < len(begins) else self._ends[-1]
            pieces.append(self.read.read_at(places[block] + at - begins[block], min(stop, end) - at))
            at, block = end, block + 1
        return b"".join(pieces)


class DumpPlan:
    """Some of the revisions of a dump."""

    def __init__(self, source: DumpSource, numbers: Sequence[int]) -> None:
        self._source = source
        self._numbers = numbers
        self.graph: Sequence[GraphNode] = [source.graph[number] for number in numbers]
        self.size = sum(map(source.size, numbers))
        """Bytes of the segments."""

    def segments(self) -> Iterator[bytes]:
        """Each as it lies."""
        return map(self._source.segment, self._numbers)

    def without_bases(self, keys: Collection[Key]) -> DumpPlan:
        """There is no such plan, as of any repository that is copied as it lies.

        Raises:
            CannotCopy: always.
        """
        raise CannotCopy(f"the other side lacks {shown(min(keys))} though it has what brought it: verify it")

    def first(self, size: int) -> DumpPlan:
        """The first revisions, at least one, of about so many bytes together."""
        sizes = accumulate(map(self._source.size, self._numbers))
        count = sum(1 for _ in takewhile(lambda together: together <= size, sizes))
        return DumpPlan(self._source, self._numbers[: max(count, 1)])


class FirstPart:
    """A `PushSource`: the first `PART` bytes of what the target lacks of a dump."""

    def __init__(self, source: DumpSource) -> None:
        self._source = source
        self.planned: Sequence[GraphNode] = ()
        """The revisions of the last plan."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> DumpPlan:
        """As of `DumpSource`."""
        plan = self._source.plan(tips, haves).first(PART)
        self.planned = plan.graph
        return plan
