"""Summaries: the rows of a log for the revisions of a pack, in a file beside the pack.

Without summaries, the first log after a start of the server would read one record for each revision, from all over the
pack. This file has the same rows in a few megabytes, in order. It is derived: no record names it, a reader does without
a missing or damaged file, and upkeep writes a missing one (`summarise`). A pack never changes, and the file depends on
no other pack, so it never becomes stale.

Revisions are grouped in blocks of 256. A block has a column for each part of a revision in a log
(`records.browse.split_revision`), and equal columns of 32 blocks are stored side by side: `log -q` reads one of three
columns.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from smartserver.errors import CorruptFile
from smartserver.records.browse import join_revision, split_revision
from smartserver.records.delta import compress, decompress
from smartserver.records.varint import Malformed
from smartserver.store.caches import Block
from smartserver.store.format import PACKS
from smartserver.store.pack import TRAILER
from smartserver.store.record import PackEntry
from transports.base import ReadFile

BITS: Final = 8
BLOCK: Final = 1 << BITS
"""The number of revisions of a pack whose summaries are stored together."""
GROUP: Final = 32
"""The number of blocks whose columns are stored side by side."""
LEAST: Final = 64
"""The fewest revisions of a pack that gets summaries. Fewer revisions are read one by one in some 15 ms."""
AHEAD: Final = 256 << 10
"""The most bytes that are read ahead and kept for each column of an open file."""
MOST: Final = 16 << 20
"""The most bytes of a decompressed column of a block, whose 256 rows have at most 16 KiB each
(`store.browse.LONGEST`)."""

_ROW: Final = struct.Struct("<IIIB")
"""The entry of a column in the table: bytes of the frame and of the text, CRC-32 of the frame, encoding."""
_END: Final = struct.Struct("<8sHHI16s")
"""The end of the table: magic, version, columns of a block, revisions, the hash of the pack."""
MAGIC: Final = b"hpss-sum"
VERSION: Final = 1

_column = msgspec.msgpack.Decoder(tuple[bytes | None, ...])


def summaries_path(name: bytes) -> str:
    """Return the path of the summaries of a pack in its repository."""
    return f"{PACKS}/{name.hex()}.summaries"


class _Column(NamedTuple):
    offset: int
    length: int
    text: int
    check: int
    encoding: int


def encode_summaries(blocks: Iterable[Block], entry: PackEntry, columns: int) -> Iterator[bytes]:
    """Yield the file of summaries of a pack in pieces. `blocks`: the rows of the pack's revisions, with messages.
    `columns`: 3 if the rows also have changes, else 2."""
    table = bytearray()
    left = iter(blocks)
    while group := list(itertools.islice(left, GROUP)):
        parts = [[None if row is None else split_revision(row) for row in block] for block in group]
        for column in range(columns):
            for rows in parts:
                text = msgspec.msgpack.encode([None if row is None else row[column] for row in rows])
                encoding, frame = compress(text)
                table += _ROW.pack(len(frame), len(text), crc32(frame), encoding)
                yield frame
    table += _END.pack(MAGIC, VERSION, columns, entry.segments, entry.hash)
    yield bytes(table) + _hash(table)


class Summaries:
    """An opened file of summaries. Several threads may use it at once."""

    def __init__(self, file: ReadFile, entry: PackEntry) -> None:
        """`entry`: the entry of the pack in the log."""
        self.path = summaries_path(entry.name)
        self._file = file
        self._entry = entry
        self.blocks = -(-entry.segments >> BITS)
        size = file.size()
        wanted = min(size, 3 * self.blocks * _ROW.size + _END.size + TRAILER)
        tail = file.read_at(size - wanted, wanted)
        if len(tail) < _END.size + TRAILER:
            raise self._damage(size, f"{size} bytes: no summaries have so few")
        magic, version, self.columns, revisions, pack = _END.unpack_from(tail, wanted - TRAILER - _END.size)
        if (magic, version) != (MAGIC, VERSION):
            raise self._damage(size, f"ends with {magic!r} and version {version}, expected {MAGIC!r} and {VERSION}")
        if (revisions, pack) != (entry.segments, entry.hash) or self.columns not in (2, 3):
            raise self._damage(size, "not the summaries of the pack that the log names")
        length = self.columns * self.blocks * _ROW.size + _END.size
        table, check = tail[-TRAILER - length : -TRAILER], tail[-TRAILER:]
        if len(table) != length or _hash(table) != check:
            raise self._damage(size, "the table does not have the hash behind it")
        self._table = self._places(table[: -_END.size], size - length - TRAILER)
        self._runs = [(0, b"")] * self.columns
        """The last bytes that were read ahead for each column, with their offset in the file."""

    def _places(self, table: bytes, end: int) -> list[list[_Column]]:
        """Return the columns of each block. `end`: the offset where the last column must end."""
        found: list[list[_Column]] = [[] for _ in range(self.blocks)]
        rows = _ROW.iter_unpack(table)
        offset = 0
        for first in range(0, self.blocks, GROUP):
            for _ in range(self.columns):
                for block in range(first, min(first + GROUP, self.blocks)):
                    length, text, check, encoding = next(rows)
                    found[block].append(_Column(offset, length, text, check, encoding))
                    offset += length
        if offset != end:
            raise self._damage(end, f"the columns have {offset} bytes, and lie in {end}")
        return found

    def block(self, number: int, *, messages: bool, changes: bool) -> Block | None:
        """Return the rows of a block, encoded as in a log; None if `changes` are wanted and this file lacks them."""
        if changes and self.columns < 3:
            return None
        heads = self._rows(number, 0)
        said = self._rows(number, 1) if messages else itertools.repeat(None)
        changed = self._rows(number, 2) if changes else itertools.repeat(None)
        return tuple(
            None if head is None else join_revision(head, *rest)
            for head, *rest in zip(heads, said, changed, strict=False)
        )

    def _rows(self, number: int, column: int) -> Sequence[bytes | None]:
        place = self._table[number][column]
        frame = self._read(number, column, place)
        try:
            if crc32(frame) != place.check or place.text > MOST:
                raise Malformed(0, "it does not match its checksum")
            rows = _column.decode(decompress(place.encoding, frame, place.text))
        except (Malformed, msgspec.DecodeError) as error:
            raise self._damage(place.offset, f"block {number}: {error}") from error
        if len(rows) != min(BLOCK, self._entry.segments - (number << BITS)):
            raise self._damage(place.offset, f"block {number} has {len(rows)} revisions")
        return rows

    def _read(self, number: int, column: int, place: _Column) -> bytes:
        """Read the frame of a column of a block. If the frames of the group's other blocks are short, also read them,
        because a log needs them next."""
        start, run = self._runs[column]
        if not start <= place.offset <= place.offset + place.length <= start + len(run):
            first = number - number % GROUP
            begin, end = self._table[first][column], self._table[min(first + GROUP, self.blocks) - 1][column]
            start, size = begin.offset, end.offset + end.length - begin.offset
            if size > AHEAD:
                return self._file.read_at(place.offset, place.length)
            run = self._file.read_at(start, size)
            self._runs[column] = start, run
        return run[place.offset - start : place.offset - start + place.length]

    def _damage(self, at: int, why: str) -> CorruptFile:
        return CorruptFile(self.path, at, why)


def _hash(content: bytes | bytearray) -> bytes:
    return blake2b(content, digest_size=TRAILER).digest()
