"""The trailer of a pack, after the pack's own bytes: the request that uploaded the pack.

If the record of the change is lost, `recovery` carries out the change again from the trailer.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from smartserver.errors import CorruptFile
from smartserver.store.record import Bytes16, Entry, Natural
from transports.base import Transport
from transports.steps import ReadRanges

MAGIC = b"hpss-trl"
VERSION = 1
OLD_MAGIC = b"hpss-int"
"""The first bytes of the trailer of a pack from before the repository was upgraded (`old_root`). Such a trailer is
never read."""

HEADER = struct.Struct("<8sHH")
"""Magic, version, flags (0); the msgpack of the trailer follows."""
FOOTER = struct.Struct("<I16s")
"""Length of the whole trailer, BLAKE2b-16 of all bytes before the hash. A reader finds the trailer from the end of the
file."""

TAIL = 4096
"""Bytes of a trailer that are read at once: enough for a push of some ten refs."""


class Trailer(msgspec.Struct, frozen=True, array_like=True):
    """The description of the request that stored a pack.

    `entry`: the log entry of the request; None for a pack that a repack or prune wrote. `version`, `hash`: the number
    and the hash of the log record on whose state the request was decided. `joins`: the names of the packs that a joined
    pack replaces, in order.
    """

    incarnation: Bytes16
    version: Natural
    hash: Bytes16
    entry: Entry | None
    joins: tuple[Bytes16, ...] = ()


_DECODER = msgspec.msgpack.Decoder(Trailer)


def encode_trailer(trailer: Trailer) -> bytes:
    """Encode a trailer as the bytes behind a pack's hash."""
    content = HEADER.pack(MAGIC, VERSION, 0) + msgspec.msgpack.encode(trailer)
    content += struct.pack("<I", len(content) + FOOTER.size)
    return content + blake2b(content, digest_size=16).digest()


Read = Callable[[int, int], bytes]
"""A function that returns bytes of a file, by offset and size; fewer at the end of the file."""


def ranges_of(folder: Transport, path: str) -> Read:
    """Return a function that reads ranges of a file. Each call takes one round trip."""

    def read(offset: int, size: int) -> bytes:
        step = ReadRanges(path, [(offset, size)])
        folder.perform([step])
        return step.result[0]

    return read


def trailer_of(folder: Transport, path: str, size: int) -> tuple[int, Trailer | None]:
    """Return the offset and content of the trailer at the end of a file of `size` bytes; `size` and None if the file
    has no undamaged trailer."""
    read = ranges_of(folder, path)
    content = read(max(0, size - TAIL), TAIL)
    length = _length(content)
    if HEADER.size + FOOTER.size < length <= size:
        content = content[-length:] if length <= len(content) else read(size - length, length)
        with contextlib.suppress(CorruptFile):
            if content.startswith(MAGIC):
                return size - length, _decode(content, path, size - length)
    return size, None


def trailer_behind(content: bytes, read: Read, length: int, path: str) -> Trailer | None:
    """Return the trailer after the first `length` bytes of a file; None if nothing follows them, or a trailer with
    `OLD_MAGIC`. `content`: the next `TAIL` bytes of the file, read already."""
    while content and len(content) % TAIL == 0 and (more := read(length + len(content), TAIL)):
        content += more
    if not content or content.startswith(OLD_MAGIC):
        return None
    if _length(content) != len(content) or not content.startswith(MAGIC):
        raise CorruptFile(path, length, f"{len(content)} bytes follow that are no trailer")
    return _decode(content, path, length)


def _length(tail: bytes) -> int:
    """Return the length in the footer at the end of `tail`; 0 if it has no footer."""
    length: int = FOOTER.unpack_from(tail, len(tail) - FOOTER.size)[0] if len(tail) >= FOOTER.size else 0
    return length


def _decode(content: bytes, path: str, offset: int) -> Trailer:
    _, version, flags = HEADER.unpack_from(content)
    if (version, flags) != (VERSION, 0):
        raise CorruptFile(path, offset, f"trailer version {version} flags {flags}, this release reads version 1")
    if blake2b(memoryview(content)[:-16], digest_size=16).digest() != content[-16:]:
        raise CorruptFile(path, offset, "the trailer does not match its check")
    try:
        return _DECODER.decode(memoryview(content)[HEADER.size : -FOOTER.size])
    except msgspec.DecodeError as error:
        raise CorruptFile(path, offset, f"the trailer cannot be read: {error}") from error
