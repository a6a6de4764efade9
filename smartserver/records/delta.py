"""A record's frame: its text, compressed by zstd with the base's text as prefix. zstd is imported here and in `bulk`.

A frame is one zstd frame without magic number: content size on, checksum and dictionary id off, and the base is a
raw-content prefix. The level is 9; in a bulk push 5, 3 or 1; for a large text without a base at most 3. A received
frame is checked before zstd reads it (`_inspect`), so that no frame can claim more text than its header or its own
blocks could hold.

The native part keeps its zstd contexts, which is four times as fast on small records as zstandard's public interface.
Both accept and refuse the same frames; the frames that they make differ by some bytes. zstandard is not imported before
the first frame is made or read.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Final

from smartserver.meters import (
    COMPRESSED,
    COMPRESSED_IN,
    COMPRESSED_OUT,
    COMPRESSION_TIME,
    DECOMPRESSED,
    DECOMPRESSED_IN,
    DECOMPRESSED_OUT,
    here,
)
from smartserver.records import limits
from smartserver.records.hunks import Buffer, apply_hunks, decode_hunks, hunk_parts
from smartserver.records.native import twin
from smartserver.records.segment import HUNKS, STORED, ZSTD, ZSTD_HUNKS
from smartserver.records.varint import Malformed, decode, encode

LEVEL: Final = 9

BULK_LEVEL: Final = 5
"""The level for a push of a long history: 2 % more bytes than level 6, and 7 % less of a client's time
(doc/design/0005)."""


_LARGE_LEVEL: Final = 3
"""The highest level for a large text without a base: a tenth more bytes than `LEVEL`, in a fifth of the time
(doc/design/0005)."""
_LARGE: Final = 64 << 10
"""The fewest bytes of a large text."""

_HUNKS_LEVEL: Final = 3
_LEAST_PACKED: Final = 256
"""The bytes of hunks above which they are compressed. Shorter hunks would shrink by a third, but zstd takes as long for
them as for long ones."""

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BLOCK: Final = 128 << 10
"""The most bytes of text that one block of a zstd frame may hold."""

_PROBE_LEVEL: Final = 1

_PROBE: Final = 64 << 10
"""The bytes from the middle of a large text that are compressed first, to see whether the text is compressible."""

_PROBED: Final = 128 << 10
"""The fewest bytes of a text that is probed before it is compressed. For a smaller text, the probe would take most of
the time."""


def compress(text: bytes, base: bytes = b"", level: int = LEVEL) -> tuple[int, bytes]:
    """Return the encoding and frame of `text`. A base that is not usable (`usable_base`) is ignored.

    If the frame would be no smaller than the text, the text itself is the frame, without a base.
    """
    if not usable_base(text, base):
        base = b""
    elif base is text:
        base = bytes(bytearray(text))  # zstd drops a prefix that overlaps the text in memory.
    zstd = _zstd()
    if len(text) >= _PROBED and not base and incompressible(text):
        return STORED, text
    if len(text) >= _LARGE and not base:
        level = min(level, _LARGE_LEVEL)
    start = perf_counter_ns()
    frame = zstd.compress(text, base, level) if text else b""
    tally = here.tally
    tally[COMPRESSION_TIME] += perf_counter_ns() - start
    tally[COMPRESSED] += 1
    tally[COMPRESSED_IN] += len(text)
    tally[COMPRESSED_OUT] += len(frame)
    if len(frame) >= len(text):
        return STORED, text
    return ZSTD, frame


class TextParts:
    """A text over `limits.MAX_BASED` in parts. A part is dropped when it is taken, so that the text is not in memory
    together with its frame."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = deque(parts)
        self.length = sum(map(len, self._parts))

    @property
    def middle(self) -> bytes:
        """The part in the middle of those that were not taken yet."""
        return self._parts[len(self._parts) // 2]

    def take(self) -> Iterator[bytes]:
        """Yield each part, and drop it. The parts can be read only once."""
        while self._parts:
            yield self._parts.popleft()


def compress_parts(text: TextParts) -> tuple[int, list[bytes]]:
    """Compress a text in parts without a base. Return the encoding, and the frame in parts."""
    if incompressible(text.middle):
        return STORED, list(text.take())
    import zstandard as zs

    log = limits.PARTS_WINDOW_LOG
    parameters = zs.ZstdCompressionParameters.from_level(
        LEVEL, source_size=text.length, window_log=log, hash_log=log + 1, chain_log=log + 1, write_dict_id=0
    )
    length = text.length
    start = perf_counter_ns()
    made = zs.ZstdCompressor(compression_params=parameters).compressobj(size=length)
    frame = [ready for part in text.take() if (ready := made.compress(part))]
    frame.append(made.flush())
    frame[0] = frame[0][len(_MAGIC) :]
    tally = here.tally
    tally[COMPRESSION_TIME] += perf_counter_ns() - start
    tally[COMPRESSED] += 1
    tally[COMPRESSED_IN] += length
    tally[COMPRESSED_OUT] += sum(map(len, frame))
    return ZSTD, frame


def usable_base(text: bytes, base: bytes) -> bool:
    """Tell whether `base` may be the base of `text`: it is not too short, and both are within `limits.MAX_BASED`."""
    return len(base) >= limits.MIN_BASE and len(base) + len(text) <= limits.MAX_BASED


def incompressible(text: bytes) -> bool:
    """Tell whether a piece from the middle of `text` shrinks by less than 2 %, as in compressed or encrypted files."""
    middle = max(0, (len(text) - _PROBE) // 2)
    piece = text[middle : middle + _PROBE]
    return probe(piece) * 100 > len(piece) * 98


def probe(text: bytes, base: bytes = b"") -> int:
    """Estimate the length of the frame of `text` in a tenth of the time that `compress` takes. `base` must be empty or
    usable."""
    return len(_zstd().compress(text, base, _PROBE_LEVEL))


def decompress(encoding: int, frame: bytes | memoryview, length: int, base: bytes = b"") -> bytes:
    """Decode the text of `length` bytes in a frame. `base`: the whole text of the base.

    Raises:
        Malformed: the frame is invalid: wrong length, bytes after its end, a window, dictionary or block that is not
            allowed, or hunks that do not fit the base.
    """
    if encoding == STORED:
        if len(frame) != length:
            raise Malformed(0, f"a stored frame of {len(frame)} bytes, expected {length}")
        return bytes(frame)
    if encoding in (HUNKS, ZSTD_HUNKS):
        return apply_hunks(decode_hunks(hunks_in(encoding, frame)), length, base)
    if encoding != ZSTD:
        raise Malformed(0, f"unknown encoding {encoding}")
    _inspect(frame, length)
    if base and not limits.MIN_BASE <= len(base) <= limits.MAX_BASED - length:
        if len(base) >= limits.MIN_BASE:
            raise Malformed(0, f"a base of {len(base)} bytes for a text of {length}")
        base = b""
    try:
        text = _zstd().decompress(frame, length, base)
    except ValueError as error:
        raise Malformed(0, f"a damaged frame: {error}") from None
    if len(text) != length:
        raise Malformed(0, f"a damaged frame: {len(text)} bytes of text, expected {length}")
    tally = here.tally
    tally[DECOMPRESSED] += 1
    tally[DECOMPRESSED_IN] += len(frame)
    tally[DECOMPRESSED_OUT] += length
    return text


def decompress_parts(
    encoding: int, frame: Iterable[Buffer], length: int, base: Iterable[Buffer] = ()
) -> Iterator[Buffer]:
    """Decode a text as `decompress` does, but yield it in parts, with only the frame's own window in memory. `base`:
    the base's text in parts. For a zstd frame, the base is joined in memory; `limits.MAX_BASED` bounds it.

    Raises:
        Malformed: as in `decompress`, perhaps after some parts.
    """
    if encoding in (HUNKS, ZSTD_HUNKS):
        yield from hunk_parts(decode_hunks(hunks_in(encoding, b"".join(frame))), length, base)
        return
    if encoding not in (STORED, ZSTD):
        raise Malformed(0, f"unknown encoding {encoding}")
    size = 0
    for part in frame if encoding == STORED else _zstd_parts(frame, length, b"".join(base)):
        size += len(part)
        if size > length:
            break
        yield part
    if size != length:
        raise Malformed(0, f"a frame of {size} bytes of text or more, expected {length}")


def window(frame: bytes, length: int) -> int:
    """Return the number of bytes of text that the decoder of a frame keeps. `frame`: the first bytes of the frame.
    `length`: the bytes of the text."""
    if not frame or frame[0] & 0x20 or len(frame) < 2:
        return length
    size = 1 << limits.MIN_WINDOW_LOG + (frame[1] >> 3)
    return min(length, size + (size >> 3) * (frame[1] & 7))


def _zstd_parts(frame: Iterable[Buffer], length: int, base: bytes) -> Iterator[bytes]:
    """Yield the text of a zstd frame, one block of at most `_BLOCK` bytes at a time."""
    import zstandard as zs

    blocks = _blocks(frame)
    head = next(blocks)
    _check_head(head, length)
    if len(base) < limits.MIN_BASE:
        base = b""
    elif len(base) + length > limits.MAX_BASED:
        raise Malformed(0, f"a base of {len(base)} bytes for a text of {length}")
    prefix = zs.ZstdCompressionDict(base, dict_type=zs.DICT_TYPE_RAWCONTENT) if base else None
    made = zs.ZstdDecompressor(dict_data=prefix, max_window_size=1 << limits.MAX_WINDOW_LOG).decompressobj()
    tally = here.tally
    tally[DECOMPRESSED] += 1
    try:
        made.decompress(_MAGIC + head)
        for block in blocks:
            text = made.decompress(block)
            tally = here.tally  # Another thread may continue the iteration.
            tally[DECOMPRESSED_IN] += len(block)
            tally[DECOMPRESSED_OUT] += len(text)
            if text:
                yield text
    except zs.ZstdError as error:
        raise Malformed(0, f"a damaged frame: {error}") from None
    if not made.eof:
        raise Malformed(0, "a damaged frame: it has no end")


def _blocks(frame: Iterable[Buffer]) -> Iterator[bytes]:
    """Yield the head of a zstd frame, then each of its blocks."""
    parts = iter(frame)
    rest = b""

    def take(size: int) -> bytes:
        nonlocal rest
        while len(rest) < size:
            part = next(parts, None)
            if part is None:
                raise Malformed(0, "a frame is cut off")
            rest += part
        taken, rest = rest[:size], rest[size:]
        return taken

    descriptor = take(1)
    yield descriptor + take(_head_size(descriptor[0]) - 1)
    last = 0
    while not last:
        head = take(3)
        said = int.from_bytes(head, "little")
        last = said & 1
        yield head + take(1 if said >> 1 & 3 == 1 else said >> 3)  # 1: one byte, repeated.
    if rest or any(parts):
        raise Malformed(0, "bytes after the end of a frame")


def pack_hunks(hunks: bytes) -> tuple[int, bytes]:
    """Return the encoding and frame of encoded hunks."""
    if len(hunks) > _LEAST_PACKED:
        encoding, frame = compress(hunks, level=_HUNKS_LEVEL)
        if encoding == ZSTD:
            return ZSTD_HUNKS, encode(len(hunks)) + frame
    return HUNKS, hunks


def hunks_in(encoding: int, frame: bytes | memoryview) -> bytes:
    """Return the encoded hunks in a frame of encoding `HUNKS` or `ZSTD_HUNKS`."""
    if encoding == HUNKS:
        return bytes(frame)
    size, at = decode(frame, 0)
    if size > limits.MAX_HUNKS:
        raise Malformed(0, f"{size} bytes of hunks, expected no more than {limits.MAX_HUNKS}")
    return decompress(ZSTD, frame[at:], size)


def window_log(size: int) -> int:
    """Return the base-2 logarithm of the window for `size` bytes of base and text together. The window covers all of
    them, within the limits of zstd and `records.limits`."""
    return min(max(size.bit_length(), limits.MIN_WINDOW_LOG), limits.MAX_WINDOW_LOG)


def _inspect(frame: bytes | memoryview, length: int) -> None:
    """Check the head and all block headers of a frame, and that it ends after its last block."""
    at = _check_head(frame, length)
    blocks = 0
    last = 0
    while not last:
        head = int.from_bytes(frame[at : at + 3], "little")
        last = head & 1
        kind = head >> 1 & 3
        at += 4 if kind == 1 else 3 + (head >> 3)  # kind 1: one byte, repeated
        if kind == 3 or at > len(frame):
            raise Malformed(min(at, len(frame)), "a block of a frame is cut off or of no known kind")
        blocks += 1
    if at != len(frame):
        raise Malformed(at, f"{len(frame) - at} bytes after the end of a frame")
    if length > blocks * _BLOCK:
        raise Malformed(0, f"{blocks} blocks cannot hold {length} bytes")


def _check_head(frame: bytes | memoryview, length: int) -> int:
    """Check the head of a frame, and return the offset of its first block."""
    if length > limits.MAX_RECORD:
        raise Malformed(0, f"a text of {length} bytes, expected no more than {limits.MAX_RECORD}")
    if not frame:
        raise Malformed(0, "an empty frame")
    descriptor = frame[0]
    if descriptor & 0b11111:  # unused and reserved bit, checksum, dictionary id
        raise Malformed(0, f"frame descriptor {descriptor:#04x} has options that are not used here")
    at = _head_size(descriptor)
    if descriptor & 0x20:
        wide, field = length > 1 << limits.MAX_WINDOW_LOG, at - 1
    else:
        field = at - 2
        if not field:
            raise Malformed(0, "a frame without its content size")
        wide = len(frame) > 1 and frame[1] > (limits.MAX_WINDOW_LOG - limits.MIN_WINDOW_LOG) << 3
    if wide:
        raise Malformed(1, f"a window over 2**{limits.MAX_WINDOW_LOG} bytes")
    content = int.from_bytes(frame[at - field : at], "little") + (256 if field == 2 else 0)
    if content != length:
        raise Malformed(0, f"a frame of {content} bytes of text, expected {length}")
    return at


def _head_size(descriptor: int) -> int:
    """Return the number of bytes before the first block. They are the descriptor, the window unless the frame is a
    single segment, and the content size."""
    single = descriptor >> 5 & 1
    return 2 - single + (single, 2, 4, 8)[descriptor >> 6]


@twin
class Zstd:
    """Compresses by zstandard's public interface, with a new context and dictionary for each frame. The object must not
    be shared between threads."""

    def __init__(self) -> None:
        import zstandard

        self._zstandard = zstandard

    def compress(self, text: bytes, base: bytes, level: int) -> bytes:
        """Return the frame of `text`, without magic number. `base` is empty or has at least `limits.MIN_BASE` bytes."""
        zs = self._zstandard
        size = len(text) + len(base)
        options: dict[str, int] = {"window_log": window_log(size)}
        if size > limits.WIDE:
            options["hash_log"] = options["chain_log"] = min(options["window_log"], limits.MAX_TABLE_LOG)
        parameters = zs.ZstdCompressionParameters.from_level(
            level, source_size=size, write_content_size=1, write_checksum=0, write_dict_id=0, **options
        )
        prefix = zs.ZstdCompressionDict(base, dict_type=zs.DICT_TYPE_RAWCONTENT) if base else None
        frame: bytes = zs.ZstdCompressor(dict_data=prefix, compression_params=parameters).compress(text)
        return frame[len(_MAGIC) :]

    def decompress(self, frame: bytes | memoryview, length: int, base: bytes) -> bytes:
        """Decode the `length` bytes of text in an inspected frame.

        Raises:
            ValueError: the frame is damaged.
        """
        zs = self._zstandard
        prefix = zs.ZstdCompressionDict(base, dict_type=zs.DICT_TYPE_RAWCONTENT) if base else None
        try:
            text: bytes = zs.ZstdDecompressor(dict_data=prefix, max_window_size=1 << limits.MAX_WINDOW_LOG).decompress(
                _MAGIC + frame, max_output_size=length, allow_extra_data=False
            )
        except zs.ZstdError as error:
            raise ValueError(str(error)) from None
        return text


_threads = threading.local()


def _zstd() -> Zstd:
    try:
        zstd: Zstd = _threads.zstd
    except AttributeError:
        zstd = _threads.zstd = Zstd()
    return zstd
