"""A pack: an immutable, self-describing file of consecutive segments.

A pack is a header (magic, version, flags, header length, kinds), segments, and the BLAKE2b-16 of all bytes before it.
The trailer of the change that added the pack (`trailer`) follows in the same file. A pack is written front to back, and
read by position. It is never mapped into memory: a truncated mapping kills the process, while a short read is an error
that names the file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence

from smartserver.errors import CorruptFile, LimitExceeded
from smartserver.records.model import Kind
from smartserver.records.segment import SegmentStream
from smartserver.records.varint import Malformed
from smartserver.store.parts import PART
from smartserver.store.trailer import TAIL, trailer_behind
from transports.base import ReadFile, WriteFile

MAGIC = b"hpss-pak"
VERSION = 1
TRAILER = 16
"""Bytes of the BLAKE2b hash at the end of every pack and index."""
CHUNK = 1 << 20
"""Bytes of one sequential read."""

_FIXED = struct.Struct("<8sBBH")


def encode_header(kinds: Sequence[Kind]) -> bytes:
    """Return the bytes before the first segment. `kinds`: the kinds of records, in the order of their numbers."""
    listed = bytearray((len(kinds),))
    for kind in kinds:
        for text in (kind.name.encode(), kind.check.encode()):
            listed.append(len(text))
            listed += text
        listed.append(kind.base)
    return _FIXED.pack(MAGIC, VERSION, 0, _FIXED.size + len(listed)) + listed


def decode_header(head: bytes, name: str) -> tuple[tuple[Kind, ...], int]:
    """Decode the header of a pack: its kinds, and the offset of the first segment. `name`: the path, for messages."""
    if len(head) < _FIXED.size:
        raise CorruptFile(name, len(head), f"{len(head)} bytes, a pack's header has {_FIXED.size} or more")
    magic, version, flags, length = _FIXED.unpack_from(head)
    if magic != MAGIC:
        raise CorruptFile(name, 0, f"begins with {magic!r}, a pack with {MAGIC!r}")
    if version != VERSION or flags:
        raise CorruptFile(
            name, 8, f"pack version {version} flags {flags}, this release reads version {VERSION} flags 0"
        )
    kinds: list[Kind] = []
    at = _FIXED.size + 1
    try:
        for _ in range(head[_FIXED.size]):
            texts = []
            for _text in range(2):
                stop = at + 1 + head[at]
                texts.append(head[at + 1 : stop].decode())
                at = stop
            if head[at] > 1:
                raise ValueError(f"a kind's base flag is {head[at]}")
            kinds.append(Kind(texts[0], texts[1], bool(head[at])))
            at += 1
    except (IndexError, ValueError) as error:
        raise CorruptFile(name, at, f"the list of kinds cannot be read: {error}") from error
    if at != length:
        raise CorruptFile(name, 10, f"the header states {length} bytes, but ends after {at}")
    return tuple(kinds), length


class PackWriter:
    """Writes segments into a new pack file, and hashes them."""

    def __init__(self, file: WriteFile, kinds: Sequence[Kind]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=TRAILER)
        self.length = 0
        """The number of bytes written so far, which is the offset of the next segment."""
        self.append(encode_header(kinds))

    def append(self, chunk: bytes) -> None:
        """Write bytes of segments: a part of a segment, or several segments."""
        self._file.write(chunk)
        self._hash.update(chunk)
        self.length += len(chunk)

    def finish(self) -> tuple[int, bytes]:
        """Write the hash; return the pack's length and hash. The caller syncs the file."""
        trailer = self._hash.digest()
        self._file.write(trailer)
        self.length += TRAILER
        return self.length, trailer


class PackReader:
    """Reads one pack by position. Several threads may use it at once."""

    def __init__(self, file: ReadFile, length: int, name: str) -> None:
        """`length`: the length of the pack in the log. `name`: the path of the file, for messages."""
        self.name = name
        self.length = length
        self._file = file
        size = file.size()
        if size < length:
            raise CorruptFile(name, size, f"{size} bytes, expected {length}")
        self.header = file.read_at(0, 4096)
        self.kinds, self.first = decode_header(self.header[: max(0, length - TRAILER)], name)
        self.header = self.header[: self.first]
        self.end = length - TRAILER
        """The end of the last segment, where the hash begins."""

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes of the segments."""
        self.check_inside(offset, size)
        found = self._read_at(offset, size)
        self.check_whole(found, offset, size)
        return found

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the pack's own file; None if the segments are in another file or on another machine."""
        return self._file.descriptor

    def parts(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield a range of the segments in parts, each read when it is needed."""
        for at in range(offset, offset + size, PART):
            yield self.read(at, min(PART, offset + size - at))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges of the file, each (offset, size). A range beyond the end of the file is shortened."""
        return self._file.read_ranges(ranges)

    def _read_at(self, offset: int, size: int) -> bytes:
        return self.read_ranges([(offset, size)])[0]

    def check_inside(self, offset: int, size: int) -> None:
        """Raise CorruptFile if a range is not inside the segments."""
        if not self.first <= offset <= offset + size <= self.end:
            raise CorruptFile(
                self.name, offset, f"{size} bytes are outside of the segments ({self.first} to {self.end})"
            )

    def check_whole(self, found: bytes, offset: int, size: int) -> None:
        """Raise CorruptFile if fewer than `size` bytes were read."""
        if len(found) != size:
            raise CorruptFile(self.name, offset, f"{len(found)} bytes, expected {size}: the file became shorter")

    def chunks(self, read: Callable[[int], bytes] | None = None) -> Iterator[bytes]:
        """Yield the bytes of all segments, then check the hash of the pack. `read`: a function that returns the next
        `n` bytes, read together with those of other packs; None to read them from this pack alone."""
        digest = hashlib.blake2b(self.header, digest_size=TRAILER)
        for offset in range(self.first, self.end, CHUNK):
            size = min(CHUNK, self.end - offset)
            chunk = self.read(offset, size) if read is None else read(size)
            digest.update(chunk)
            yield chunk
        if digest.digest() != self.trailer():
            raise CorruptFile(self.name, self.end, "the content of the pack does not match the hash at its end")

    def trailer(self) -> bytes:
        """Return the hash at the end of the pack."""
        return self._read_at(self.end, TRAILER)

    def replaces(self) -> tuple[bytes, ...]:
        """Return the names of the packs that this pack joins, in order; empty if it is not a joined pack."""
        tail = self._file.read_at(self.length, TAIL)
        trailer = trailer_behind(tail, self._file.read_at, self.length, self.name)
        return () if trailer is None else trailer.joins

    def segments(self) -> Iterator[tuple[int, bytes]]:
        """Yield each segment with its offset, in order. The hash of the pack is checked after the last one."""
        offset = self.first
        stream = SegmentStream(graph_first=False, limit=self.end - self.first)
        try:
            for chunk in self.chunks():
                stream.feed(chunk)
                for segment in stream.segments():
                    yield offset, segment
                    offset += len(segment)
            stream.finish()
        except (Malformed, LimitExceeded) as error:
            raise CorruptFile(self.name, offset, f"segment: {error}") from error


class MovedPack(PackReader):
    """A pack that was joined with others and then deleted. Reads at its own offsets are answered from the joined
    pack."""

    def __init__(self, inside: PackReader, shift: int, length: int, digest: bytes, name: str) -> None:
        """`inside`: the joined pack. `shift`: the number to add to an offset. `length`, `digest`: the length and hash
        of the deleted pack."""
        self.name = name
        self.length = length
        self.kinds = inside.kinds
        self.header = inside.header
        self.first = inside.first
        self.end = length - TRAILER
        self._inside = inside
        self.shift = shift
        self._digest = digest

    @property
    def descriptor(self) -> int | None:
        """None, because the file has other offsets."""
        return None

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges of the pack, by its own offsets."""
        return self._inside.read_ranges([(offset + self.shift, size) for offset, size in ranges])

    def is_whole(self) -> bool:
        """Tell whether the joined pack has all bytes of the deleted pack, judged by its hash."""
        try:
            for _ in self.chunks():
                pass
        except CorruptFile:
            return False
        return True

    def trailer(self) -> bytes:
        """Return the hash of the deleted pack, which was checked while the joined pack was written."""
        return self._digest

    def replaces(self) -> tuple[bytes, ...]:
        """Return no names, because the trailer was deleted with the file."""
        return ()
