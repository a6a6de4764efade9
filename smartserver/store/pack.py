"""A pack: an immutable file of segments, back to back, that says by itself what it holds.

Header (magic, version, flags, header length, kinds), segments, BLAKE2b-16 of all that precedes. The trailer of the
change that brought it (`trailer`) follows in the same file. Written front to back, read by position only, never mapped:
a truncated mapping kills the process, a short read is an error with a name.
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
"""Bytes of the BLAKE2b that ends every pack and index."""
CHUNK = 1 << 20
"""Bytes of one sequential read."""

_FIXED = struct.Struct("<8sBBH")


def encode_header(kinds: Sequence[Kind]) -> bytes:
    """The bytes before the first segment: `kinds` in the order records name them by index."""
    listed = bytearray((len(kinds),))
    for kind in kinds:
        for text in (kind.name.encode(), kind.check.encode()):
            listed.append(len(text))
            listed += text
        listed.append(kind.base)
    return _FIXED.pack(MAGIC, VERSION, 0, _FIXED.size + len(listed)) + listed


def decode_header(head: bytes, name: str) -> tuple[tuple[Kind, ...], int]:
    """The kinds, and the offset of the first segment."""
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
        raise CorruptFile(name, 10, f"says its header has {length} bytes, but it ends after {at}")
    return tuple(kinds), length


class PackWriter:
    """Streams segments into a new pack file, hashing as it goes."""

    def __init__(self, file: WriteFile, kinds: Sequence[Kind]) -> None:
        self._file = file
        self._hash = hashlib.blake2b(digest_size=TRAILER)
        self.length = 0
        """Bytes written so far: the offset of the next segment."""
        self.append(encode_header(kinds))

    def append(self, chunk: bytes) -> None:
        """Write bytes of segments as they lie: part of one, or many."""
        self._file.write(chunk)
        self._hash.update(chunk)
        self.length += len(chunk)

    def finish(self) -> tuple[int, bytes]:
        """Write the trailer; gives the file's length and hash. The caller syncs."""
        trailer = self._hash.digest()
        self._file.write(trailer)
        self.length += TRAILER
        return self.length, trailer


class PackReader:
    """Reads one pack by position; usable from several threads at once."""

    def __init__(self, file: ReadFile, length: int, name: str) -> None:
        """`length`: what the log says the file has; `name`: its path, for messages."""
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
        """Offset of the trailer: where the last segment ends."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes of the segments."""
        self.check_inside(offset, size)
        found = self._read_at(offset, size)
        self.check_whole(found, offset, size)
        return found

    @property
    def descriptor(self) -> int | None:
        """The descriptor of its file: offsets are those of this pack."""
        return self._file.descriptor

    def parts(self, offset: int, size: int) -> Iterator[bytes]:
        """A range of the segments, in parts that are read when they are asked for."""
        for at in range(offset, offset + size, PART):
            yield self.read(at, min(PART, offset + size - at))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Ranges of the file, (offset, size) each; shorter where it ends."""
        return self._file.read_ranges(ranges)

    def _read_at(self, offset: int, size: int) -> bytes:
        return self.read_ranges([(offset, size)])[0]

    def check_inside(self, offset: int, size: int) -> None:
        """Refuse what is no range of the segments."""
        if not self.first <= offset <= offset + size <= self.end:
            raise CorruptFile(
                self.name, offset, f"{size} bytes are outside of the segments ({self.first} to {self.end})"
            )

    def check_whole(self, found: bytes, offset: int, size: int) -> None:
        """Refuse fewer bytes than were to be read."""
        if len(found) != size:
            raise CorruptFile(self.name, offset, f"{len(found)} bytes, expected {size}: the file became shorter")

    def chunks(self, read: Callable[[int], bytes] | None = None) -> Iterator[bytes]:
        """All segments as they lie, hashed on the way. `read`: reads the next bytes together with other packs."""
        digest = hashlib.blake2b(self.header, digest_size=TRAILER)
        for offset in range(self.first, self.end, CHUNK):
            size = min(CHUNK, self.end - offset)
            chunk = self.read(offset, size) if read is None else read(size)
            digest.update(chunk)
            yield chunk
        if digest.digest() != self.trailer():
            raise CorruptFile(self.name, self.end, "the pack does not have the hash it ends with")

    def trailer(self) -> bytes:
        """The hash at the end of the file."""
        return self._read_at(self.end, TRAILER)

    def replaces(self) -> tuple[bytes, ...]:
        """The packs it was joined from, in order; none where it was not."""
        tail = self._file.read_at(self.length, TAIL)
        trailer = trailer_behind(tail, self._file.read_at, self.length, self.name)
        return () if trailer is None else trailer.joins

    def segments(self) -> Iterator[tuple[int, bytes]]:
        """Each segment with its offset, in order; the file's hash is checked after the last one is given."""
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
    """A pack that was joined with others and then deleted, read by its own offsets where its segments lie now."""

    def __init__(self, inside: PackReader, shift: int, length: int, digest: bytes, name: str) -> None:
        """`inside`: the joined pack; `shift`: what is added to an offset; `length`, `digest`: of the pack as it was."""
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
        """None: offsets there are others."""
        return None

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Ranges of the pack, by its own offsets."""
        return self._inside.read_ranges([(offset + self.shift, size) for offset, size in ranges])

    def is_whole(self) -> bool:
        """Tell whether the bytes there are those of the pack."""
        try:
            for _ in self.chunks():
                pass
        except CorruptFile:
            return False
        return True

    def trailer(self) -> bytes:
        """The hash of the pack; the joined one was written only if the bytes had this hash."""
        return self._digest

    def replaces(self) -> tuple[bytes, ...]:
        """None: its own trailer was deleted with its file, and the joined pack's is about other packs."""
        return ()
