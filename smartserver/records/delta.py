"""A record's frame: its text, compressed by zstd with its base's as prefix. zstd is imported here and in `bulk`.

A frame is one zstd frame of level 9, in bulk 6, 5, 3 or 1, of a large text alone 3, without magic number: content size
on, checksum and dictionary id off, the base a raw-content prefix. What is read is looked over before zstd sees it
(`_inspect`), so that no frame can claim more than its header or its own blocks could hold.

zstandard's own library is called directly, one context a thread, where it lets itself be (four times the speed on small
records); else through zstandard's public interface. Both read and refuse the same; the frames they make differ by some
bytes. Neither is imported before the first frame is made or read: a pull that copies segments needs none.
"""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import Any, Final, Protocol

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
from smartserver.records.segment import HUNKS, STORED, ZSTD, ZSTD_HUNKS
from smartserver.records.varint import Malformed, decode, encode

LEVEL: Final = 9

BULK_LEVEL: Final = 6
"""For much history at once: 3 % more bytes for half of the time of `LEVEL` (doc/design/0005)."""


_LARGE_LEVEL: Final = 3
"""For a large text without a base: a tenth more bytes than `LEVEL`, in a fifth of the time (doc/design/0005)."""
_LARGE: Final = 64 << 10
"""Bytes from which a text is large."""

_HUNKS_LEVEL: Final = 3
_LEAST_PACKED: Final = 256
"""Bytes of hunks from which they are compressed: of a few zstd takes a third off, in as long as it takes of many."""

_ROWLESS: Final = 1 << 20
"""Bytes of base and text together up to which a text with a base is compressed without zstd's row-based match finder
(`useRowMatchFinder`), by hash chains, as zstd does at other levels.

Filling the tables with the base takes most of the time there, and rows are filled more slowly: level 8 takes 2.1 s with
them, 1.7 without, for 0.4 % fewer bytes (doc/design/0005). With a text alone, or a larger one, most is search, and in
that rows are faster.
"""

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BLOCK: Final = 128 << 10
"""The most text one block of a zstd frame may hold."""

_PROBE_LEVEL: Final = 1

_PROBE: Final = 64 << 10
"""Bytes of a large text that are compressed alone, to see whether it is worth while."""

_PROBED: Final = 128 << 10
"""Texts from this size are probed first: below, the probe is most of the whole."""

_TWICE: Final = 8 << 20
"""Bytes of a text up to which it may be in memory twice, in a buffer and as bytes: few texts are longer. They are read
by zstandard's public interface, whose context costs nothing beside that."""

_TABLES_KEPT: Final = 256 << 10
"""Bytes of base and text together up to which a thread keeps zstd's tables for the next text. They take 2 MiB; those of
4 MiB of text would take 32."""

_SHARED_BUFFER: Final = 1 << 20
"""Bytes of a thread's output buffer that are kept between frames."""


class _Zstd(Protocol):
    """One way to call zstd; not shared between threads. `base` is empty or at least `limits.MIN_BASE` bytes."""

    def compress(self, text: bytes, base: bytes, level: int) -> bytes:
        """The frame of `text`, without magic number."""

    def decompress(self, frame: bytes | memoryview, length: int, base: bytes) -> bytes:
        """The `length` bytes of text in an inspected frame.

        Raises:
            ValueError: the frame is damaged.
        """


def compress(text: bytes, base: bytes = b"", level: int = LEVEL) -> tuple[int, bytes]:
    """The encoding and frame of `text`; a base that does not count (see `usable_base`) is left out.

    Where the frame would be no smaller than the text, the text itself is stored. Then it has no base.
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
    """A text over `limits.MAX_BASED` in parts, which are dropped as they are taken: it is not held beside its frame."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = deque(parts)
        self.length = sum(map(len, self._parts))

    @property
    def middle(self) -> bytes:
        """The part in the middle."""
        return self._parts[len(self._parts) // 2]

    def take(self) -> Iterator[bytes]:
        """The parts; once."""
        while self._parts:
            yield self._parts.popleft()


def compress_parts(text: TextParts) -> tuple[int, list[bytes]]:
    """The encoding and frame of a text, both in parts."""
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
    """Whether `base` may be the base of `text`: not too short to count, and both within `limits.MAX_BASED`."""
    return len(base) >= limits.MIN_BASE and len(base) + len(text) <= limits.MAX_BASED


def incompressible(text: bytes) -> bool:
    """Whether a piece from the middle of `text` gains under 2 % alone, as compressed and encrypted files do."""
    middle = max(0, (len(text) - _PROBE) // 2)
    piece = text[middle : middle + _PROBE]
    return probe(piece) * 100 > len(piece) * 98


def probe(text: bytes, base: bytes = b"") -> int:
    """About how long the frame would be, at a tenth of the price; `base` must be usable."""
    return len(_zstd().compress(text, base, _PROBE_LEVEL))


def decompress(encoding: int, frame: bytes | memoryview, length: int, base: bytes = b"") -> bytes:
    """The text of `length` bytes that a frame holds; `base` is the whole text of its base.

    Raises:
        Malformed: it is no such frame: wrong length, bytes left over, a window, dictionary or block that is not legal,
            hunks that are not of that base.
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
    except ValueError as wrong:
        raise Malformed(0, f"a damaged frame: {wrong}") from None
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
    """As `decompress`, in parts: of frame, text and window no more is held than the frame's own window. `base` comes in
    parts too; of a zstd frame it is held, which `limits.MAX_BASED` bounds.

    Raises:
        Malformed: as `decompress`, once that is known.
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
    """Bytes of text that the decoder of a frame keeps. `frame`: its begin; `length`: of the text."""
    if not frame or frame[0] & 0x20 or len(frame) < 2:
        return length
    size = 1 << limits.MIN_WINDOW_LOG + (frame[1] >> 3)
    return min(length, size + (size >> 3) * (frame[1] & 7))


def _zstd_parts(frame: Iterable[Buffer], length: int, base: bytes) -> Iterator[bytes]:
    """The text of a zstd frame, a block at a time: none has more than `_BLOCK`."""
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
            tally = here.tally  # Another thread may go on with it.
            tally[DECOMPRESSED_IN] += len(block)
            tally[DECOMPRESSED_OUT] += len(text)
            if text:
                yield text
    except zs.ZstdError as wrong:
        raise Malformed(0, f"a damaged frame: {wrong}") from None
    if not made.eof:
        raise Malformed(0, "a damaged frame: it has no end")


def _blocks(frame: Iterable[Buffer]) -> Iterator[bytes]:
    """The head of a zstd frame, then each of its blocks.

    Raises:
        Malformed: it is cut off, or something follows its last block.
    """
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
    """The encoding and frame of hunks."""
    if len(hunks) > _LEAST_PACKED:
        encoding, frame = compress(hunks, level=_HUNKS_LEVEL)
        if encoding == ZSTD:
            return ZSTD_HUNKS, encode(len(hunks)) + frame
    return HUNKS, hunks


def hunks_in(encoding: int, frame: bytes | memoryview) -> bytes:
    """The hunks that a frame of them has.

    Raises:
        Malformed: it has none.
    """
    if encoding == HUNKS:
        return bytes(frame)
    size, at = decode(frame, 0)
    if size > limits.MAX_HUNKS:
        raise Malformed(0, f"{size} bytes of hunks, expected no more than {limits.MAX_HUNKS}")
    return decompress(ZSTD, frame[at:], size)


def window_log(size: int) -> int:
    """The window for `size` bytes of base and text together: always all of them, within zstd's and our limits."""
    return min(max(size.bit_length(), limits.MIN_WINDOW_LOG), limits.MAX_WINDOW_LOG)


def _inspect(frame: bytes | memoryview, length: int) -> None:
    """Check everything a frame says of itself, and that it ends where it says."""
    # Nearly all: a single segment of 256 bytes or more, whose length takes two bytes, as one block that is no run.
    head = int.from_bytes(frame[:6], "little")
    if (
        head & 0x30000FF == 0x1000060
        and 6 + (head >> 27) == len(frame)
        and (head >> 8 & 0xFFFF) + 256 == length <= _BLOCK
    ):
        return
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
    """Check what a frame says of itself; gives where its blocks begin."""
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
    """Bytes before the first block: the descriptor, the window unless the frame is a single segment, the length."""
    single = descriptor >> 5 & 1
    return 2 - single + (single, 2, 4, 8)[descriptor >> 6]


class _PublicZstd:
    """zstd through zstandard's public interface: a context and a dictionary a frame."""

    def __init__(self) -> None:
        import zstandard

        self._zstandard = zstandard

    def compress(self, text: bytes, base: bytes, level: int) -> bytes:
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
        zs = self._zstandard
        prefix = zs.ZstdCompressionDict(base, dict_type=zs.DICT_TYPE_RAWCONTENT) if base else None
        try:
            text: bytes = zs.ZstdDecompressor(dict_data=prefix, max_window_size=1 << limits.MAX_WINDOW_LOG).decompress(
                _MAGIC + frame, max_output_size=length, allow_extra_data=False
            )
        except zs.ZstdError as wrong:
            raise ValueError(str(wrong)) from None
        return text


class _SharedZstd:
    """zstd through the library inside zstandard's wheel: two contexts that are kept, bases by reference.

    Raises ImportError or AttributeError when made where that (private) part of zstandard is missing or has changed.
    """

    def __init__(self) -> None:
        library = importlib.import_module("zstandard._cffi")
        self._lib: Any = library.lib
        self._ffi: Any = library.ffi
        lib = self._lib
        self._refer_written: Any = lib.ZSTD_CCtx_refPrefix
        self._compress: Any = lib.ZSTD_compress2
        self._new = self._ffi.new_allocator(should_clear_after_alloc=False)
        self._out = self._new("char[]", _SHARED_BUFFER)
        self._large = _PublicZstd()
        self._writer = self._make_writer()
        self._set: tuple[int, int, int, bool] | None = None
        """What the parameters depend on that the writer has."""
        self._made: dict[tuple[int, int, int, bool], Any] = {}
        """The parameters by what they depend on: a few for each power of two."""
        self._reader = self._ffi.gc(lib.ZSTD_createDCtx(), lib.ZSTD_freeDCtx)
        self._must(lib.ZSTD_DCtx_setFormat(self._reader, lib.ZSTD_f_zstd1_magicless))
        self._refer: Any = lib.ZSTD_DCtx_refPrefix
        self._decompress: Any = lib.ZSTD_decompressDCtx
        self._from_buffer: Any = self._ffi.from_buffer
        self._unpack: Any = self._ffi.unpack

    def _make_writer(self) -> Any:
        lib = self._lib
        writer = self._ffi.gc(lib.ZSTD_createCCtx(), lib.ZSTD_freeCCtx)
        for option, value in (
            (lib.ZSTD_c_format, lib.ZSTD_f_zstd1_magicless),
            (lib.ZSTD_c_contentSizeFlag, 1),
            (lib.ZSTD_c_checksumFlag, 0),
            (lib.ZSTD_c_dictIDFlag, 0),
        ):
            self._must(lib.ZSTD_CCtx_setParameter(writer, option, value))
        return writer

    def compress(self, text: bytes, base: bytes, level: int) -> bytes:
        lib = self._lib
        size = len(text) + len(base)
        writer = self._writer
        rowless = base != b"" and size <= _ROWLESS
        if size > _TABLES_KEPT:
            # A context keeps its tables, 128 MiB of a large text: this one is not kept.
            writer = self._make_writer()
            self._prepare(writer, self._parameters(level, size), rowless)
        else:
            # All that the parameters depend on: zstd's own by the least power of two that is no smaller than the size.
            wanted = (level, size.bit_length(), (size - 1).bit_length(), rowless)
            if wanted != self._set:
                self._set = None
                parameters = self._made.get(wanted)
                if parameters is None:
                    parameters = self._made[wanted] = self._parameters(level, size)
                self._prepare(writer, parameters, rowless)
                self._set = wanted
        if base and (wrong := self._refer_written(writer, base, len(base))):
            self._must(wrong)
        room = _SHARED_BUFFER if len(text) <= _SHARED_BUFFER // 2 else lib.ZSTD_compressBound(len(text))
        out = self._out if room <= _SHARED_BUFFER else self._new("char[]", room)
        result = self._compress(writer, out, room, text, len(text))
        if result > room:
            self._must(result)
        frame: bytes = self._unpack(out, result)
        return frame

    def _prepare(self, writer: Any, parameters: Any, rowless: bool) -> None:
        lib = self._lib
        self._must(lib.ZSTD_CCtx_setCParams(writer, parameters))
        rows = lib.ZSTD_ps_disable if rowless else lib.ZSTD_ps_auto
        self._must(lib.ZSTD_CCtx_setParameter(writer, lib.ZSTD_c_useRowMatchFinder, rows))

    def _parameters(self, level: int, size: int) -> Any:
        """For text and base of that size together."""
        parameters = self._lib.ZSTD_getCParams(level, size, 0)
        parameters.windowLog = window_log(size)
        if size > limits.WIDE:
            parameters.hashLog = parameters.chainLog = min(parameters.windowLog, limits.MAX_TABLE_LOG)
        return parameters

    def decompress(self, frame: bytes | memoryview, length: int, base: bytes) -> bytes:
        if length > _TWICE:
            return self._large.decompress(frame, length, base)
        # Some 17,000 times for 3,000 revisions, of a microsecond or two: so no call is made here that need not be.
        if base and (wrong := self._refer(self._reader, base, len(base))):
            self._must(wrong)
        out = self._out if length <= _SHARED_BUFFER else self._new("char[]", length)
        result = self._decompress(self._reader, out, length, self._from_buffer(frame), len(frame))
        if result > length:  # As every error's number is.
            self._must(result)
        text: bytes = self._unpack(out, result)
        return text

    def _must(self, result: int) -> int:
        if self._lib.ZSTD_isError(result):
            # What a failed call leaves behind must not reach the next frame; the failed context may be either.
            self._lib.ZSTD_CCtx_reset(self._writer, self._lib.ZSTD_reset_session_only)
            self._lib.ZSTD_DCtx_reset(self._reader, self._lib.ZSTD_reset_session_only)
            raise ValueError(self._ffi.string(self._lib.ZSTD_getErrorName(result)).decode())
        return result


_threads = threading.local()
_makers: list[Callable[[], _Zstd]] = [_SharedZstd, _PublicZstd]
"""Tried in this order; the first that works serves every thread."""


def _zstd() -> _Zstd:
    try:
        zstd: _Zstd = _threads.zstd
    except AttributeError:
        zstd = _threads.zstd = _make()
    return zstd


def _make() -> _Zstd:
    base, text = b"A sentence to be changed.", b"A sentence that was changed."
    for maker in _makers[:-1]:
        try:
            zstd = maker()
            if zstd.decompress(zstd.compress(text, base, LEVEL), len(text), base) == text:
                return zstd
        except (ImportError, AttributeError, TypeError, ValueError):
            continue
    return _makers[-1]()
