"""A store behind a link: what a request reads of it is asked for together, in one trip where that can be.

On this machine each read is a call of its own, and nothing here is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from smartserver.errors import CorruptFile
from smartserver.records.model import Kind
from smartserver.store.document import PackEntry
from smartserver.store.pack import TRAILER, PackReader, decode_header, encode_header
from transports.base import Capability, Transport
from transports.steps import Get, ReadRanges

AT_ONCE = 8 << 20
"""Bytes that are asked for at once, or held to be written at once: what a link of 64 Mbit/s brings in a second, so that
trips are little of it, and few enough to be held for each reader and writer."""
NEAR = 4 << 20
"""Bytes of a record that are read with its header: a trip saved is worth more than the bytes."""


def is_far(transport: Transport) -> bool:
    """Whether a store is behind a link: one of this machine maps files or locks them."""
    return not transport.capabilities & (Capability.MMAP | Capability.LOCK)


class FarPack(PackReader):
    """A pack of such a store; that it is there, and what the root says, is seen with the first read."""

    def __init__(self, transport: Transport, path: str, entry: PackEntry, kinds: Sequence[Kind]) -> None:
        self.name = path
        self.length = entry.length
        self.kinds = tuple(kinds)
        self.header = encode_header(kinds)
        self.first = len(self.header)
        self.end = entry.length - TRAILER
        self.transport = transport
        self._trailer = b""
        """Once the file is proved."""

    def ask(self, ranges: Sequence[tuple[int, int]]) -> ReadRanges:
        """The step that reads ranges of it, for `take`; the first one reads what proves the file, too."""
        proof = [] if self._trailer else [(0, self.first), (self.end, TRAILER)]
        return ReadRanges(self.name, [*proof, *ranges])

    def take(self, step: ReadRanges, count: int) -> list[bytes]:
        """The last `count` ranges of a step that was performed.

        Raises:
            CorruptFile: the file has another length or other kinds than the root says.
        """
        found = step.result
        if len(found) > count:
            head, tail = found[:2]
            if len(tail) != TRAILER or self.end < self.first:
                raise CorruptFile(self.name, self.end, f"ends before byte {self.length}")
            if head != self.header:
                kinds, _ = decode_header(head, self.name)
                raise CorruptFile(self.name, 0, f"its kinds are {kinds}, the repository's {self.kinds}")
            self._trailer = tail
        return found[len(found) - count :]

    def close(self) -> None:
        """There is nothing to give back."""

    def trailer(self) -> bytes:
        """As of any pack; it came with the first read."""
        if not self._trailer:
            self.read_ranges([])
        return self._trailer

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As of any pack, in one trip.

        Raises:
            CorruptFile, NoSuchFile, TransportFailed: as `read_across`.
        """
        step = self.ask(ranges)
        self.transport.perform([step])
        return self.take(step, len(ranges))

    def replaces(self) -> tuple[bytes, ...]:
        """Not asked: it would be one more trip, to save a check that needs none."""
        return ()

    def _read_at(self, offset: int, size: int) -> bytes:
        return self.read_ranges([(offset, size)])[0]


def read_across(wanted: Sequence[tuple[PackReader, int, int]]) -> list[bytes]:
    """Ranges of segments of several packs (each with its offset and size), in that order, together where they are far.

    Raises:
        CorruptFile: a pack is not what the root says, or became shorter.
        NoSuchFile: a pack is gone.
        TransportFailed: the store failed.
    """
    by_pack: dict[PackReader, list[int]] = {}
    for number, (pack, offset, size) in enumerate(wanted):
        pack.check_inside(offset, size)
        by_pack.setdefault(pack, []).append(number)
    found: dict[int, bytes] = {}
    asked: list[tuple[FarPack, list[int], ReadRanges]] = []
    for pack, numbers in by_pack.items():
        ranges = [wanted[number][1:] for number in numbers]
        if isinstance(pack, FarPack):
            asked.append((pack, numbers, pack.ask(ranges)))
        else:
            found.update(zip(numbers, pack.read_ranges(ranges), strict=True))
    if asked:
        asked[0][0].transport.perform([step for _, _, step in asked])
    for far, numbers, step in asked:
        found.update(zip(numbers, far.take(step, len(numbers)), strict=True))
    for number, (pack, offset, size) in enumerate(wanted):
        pack.check_whole(found[number], offset, size)
    return [found[number] for number in range(len(wanted))]


Place = tuple[int, int]
"""Where a record lies: the place of its pack among a snapshot's, and its row in the index."""


class Fetched:
    """The bytes of records that were read together, each until it is asked for; usable from several threads."""

    def __init__(self) -> None:
        self._content: dict[Place, bytes] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._content

    def read(self, wanted: Mapping[Place, tuple[PackReader, int, int]]) -> None:
        """Read records, each with its pack, offset and size; what was read before and is too much by now is let go.

        Raises:
            CorruptFile, NoSuchFile, TransportFailed: as `read_across`.
        """
        held = sum(map(len, list(self._content.values())))
        if held + sum(size for _, _, size in wanted.values()) > AT_ONCE:
            self._content.clear()
        self._content.update(zip(wanted, read_across(list(wanted.values())), strict=True))

    def take(self, place: Place) -> bytes | None:
        """What was read of a record, once; None where it was not."""
        return self._content.pop(place, None)


def get_all(transport: Transport, files: Mapping[str, int]) -> Iterator[tuple[str, bytes | None]]:
    """The content of files, given with the bytes they should have; None for one that is not there.

    Raises:
        TransportFailed: the store failed.
    """
    steps: list[Get] = []
    size = 0
    for path, length in files.items():
        if steps and size + length > AT_ONCE:
            yield from _got(transport, steps)
            steps, size = [], 0
        steps.append(Get(path, length))
        size += length
    yield from _got(transport, steps)


def _got(transport: Transport, steps: Sequence[Get]) -> Iterator[tuple[str, bytes | None]]:
    if steps:
        transport.perform(steps)
        for step in steps:
            yield step.path, step.result
