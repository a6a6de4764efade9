"""Reads from a remote store: the reads of a request are combined, into one round trip if possible.

For a local store, each read is a separate call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from smartserver.errors import CorruptFile
from smartserver.records.model import Kind
from smartserver.store.pack import TRAILER, PackReader, decode_header, encode_header
from smartserver.store.record import PackEntry
from transports.base import Capability, Transport
from transports.errors import NoSuchFile
from transports.steps import Get, ReadRanges

AT_ONCE = 8 << 20
"""The most bytes that are read at once, and the most of a new pack that are kept in memory. A link of 64 Mbit/s carries
them in a second, so round trips add little time."""
MOVES = 4
"""The most times that one read searches the newest state for missing packs."""
SMALL = 64 << 10
"""The most bytes of the newest packs that are read together with their indexes and kept in memory, because most
requests need them next. Reads of an object store cost money, so the first snapshot of a process does not read packs
there. Also the most bytes of an index that a server reads whole from an object store."""
NEAR = 4 << 20
"""The most bytes of a record that are read together with its header: saving a round trip is worth more than the
bytes."""


def is_remote(transport: Transport) -> bool:
    """Tell whether a store is on another machine, so that reads take round trips."""
    return Capability.ROUND_TRIPS in transport.capabilities


class PackRange(NamedTuple):
    """The range of a file that holds the segments of a pack."""

    path: str
    """The path of the file."""
    entry: PackEntry
    """The entry of that file in the log."""
    shift: int
    """The number to add to the pack's own offsets."""


Find = Callable[[], PackRange | None]
"""A function that finds the segments of a missing pack in the newest state; None if that state still names the file."""


class RemotePack(PackReader):
    """A pack of a remote store. Its header is checked at the first read. If its file was deleted because the pack was
    joined with others, segments are read from the joined pack."""

    def __init__(
        self, transport: Transport, place: PackRange, kinds: Sequence[Kind], find: Find, content: bytes | None = None
    ) -> None:
        """`place`: the whole file of the pack. `content`: the content of that file, if it was read already."""
        self.name = place.path
        self.length = place.entry.length
        self.kinds = tuple(kinds)
        self.header = encode_header(kinds)
        self.first = len(self.header)
        self.end = self.length - TRAILER
        self.transport = transport
        self._place = place
        self._find = find
        self._own_hash = place.entry.hash
        self._trailer = b""
        """The hash at the end of the pack; empty until it was read."""
        self._proved = False
        self._content = content

    @property
    def descriptor(self) -> int | None:
        """None, because the file is on another machine."""
        return None

    def ask(self, ranges: Sequence[tuple[int, int]]) -> ReadRanges:
        """Return the step that reads ranges, for `take`. Until the header is checked, a step also reads the header and
        the hash."""
        path, entry, shift = self._place
        proof = [] if self._proved else [(0, self.first), (entry.length - TRAILER, TRAILER)]
        step = ReadRanges(path, [*proof, *[(offset + shift, size) for offset, size in ranges]])
        if self._content is not None:
            step.settle([self._content[offset:][:size] for offset, size in step.ranges])
        return step

    def take(self, step: ReadRanges, count: int) -> list[bytes]:
        """Return the last `count` ranges of a step that was performed. Check the header if the step has read it."""
        found = step.result
        if len(found) > count:
            path, entry, _ = self._place
            head, tail = found[:2]
            if len(tail) != TRAILER or self.end < self.first:
                raise CorruptFile(path, entry.length - TRAILER, f"ends before byte {entry.length}")
            if head != self.header:
                kinds, _ = decode_header(head, path)
                raise CorruptFile(path, 0, f"its kinds of records are {kinds}, expected {self.kinds}")
            self._trailer = self._trailer or tail
            self._proved = True
        return found[len(found) - count :]

    def move(self) -> bool:
        """Find the pack that has the segments now, because a file is missing. Return False if the place has not
        changed."""
        place = self._find()
        if place is None or place == self._place:
            return False
        # The joined pack was written only after this pack was found to have the hash in the log.
        self._place, self._proved, self._trailer = place, False, self._own_hash
        return True

    def trailer(self) -> bytes:
        """Return the hash at the end of the file, which the first read includes."""
        if not self._trailer:
            self.read_ranges([])
        return self._trailer

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges of the file, in one round trip."""
        return _read([(self, ranges)])[0]

    def replaces(self) -> tuple[bytes, ...]:
        """Return no names, because reading them would take one more round trip."""
        return ()


def read_across(wanted: Sequence[tuple[PackReader, int, int]]) -> list[bytes]:
    """Read ranges of segments, each given by pack, offset and size, and return their bytes in that order. All remote
    packs are read in one round trip."""
    by_pack: dict[PackReader, list[int]] = {}
    for number, (pack, offset, size) in enumerate(wanted):
        pack.check_inside(offset, size)
        by_pack.setdefault(pack, []).append(number)
    found: dict[int, bytes] = {}
    asked: list[tuple[RemotePack, Sequence[tuple[int, int]]]] = []
    places: list[int] = []
    for pack, numbers in by_pack.items():
        ranges = [wanted[number][1:] for number in numbers]
        if isinstance(pack, RemotePack):
            asked.append((pack, ranges))
            places += numbers
        else:
            found.update(zip(numbers, pack.read_ranges(ranges), strict=True))
    found.update(zip(places, itertools.chain.from_iterable(_read(asked)), strict=True))
    for number, (pack, offset, size) in enumerate(wanted):
        pack.check_whole(found[number], offset, size)
    return [found[number] for number in range(len(wanted))]


def _read(asked: Sequence[tuple[RemotePack, Sequence[tuple[int, int]]]]) -> list[list[bytes]]:
    """Read ranges of several remote packs. This takes one round trip if no file is missing."""
    for moves_left in range(MOVES, -1, -1):
        steps = [pack.ask(ranges) for pack, ranges in asked]
        try:
            left = [step for step in steps if not step.was_performed]
            if left:
                asked[0][0].transport.perform(left)
        except NoSuchFile:
            # All packs are looked for: the next missing one would be noticed only by the next trip.
            moved = [pack.move() for pack, _ in asked] if moves_left else []
            if not any(moved):
                raise
            continue
        return [pack.take(step, len(ranges)) for (pack, ranges), step in zip(asked, steps, strict=True)]
    raise AssertionError("the last read returns or raises")


def get_all(transport: Transport, files: Mapping[str, int]) -> Iterator[tuple[str, bytes | None]]:
    """Read files, given with their expected sizes. Yield each path with its content; None if the file is missing."""
    left = list(files.items())
    while left:
        steps: list[Get] = []
        size = 0
        while left and (not steps or size + left[0][1] <= AT_ONCE):
            steps.append(Get(*left[0]))
            size += left.pop(0)[1]
        transport.perform(steps)
        for step in steps:
            yield step.path, step.result
