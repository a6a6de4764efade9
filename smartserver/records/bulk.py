"""A bulk stream: many texts as one zstd frame, so that whatever they share is sent once.

It is what answers that are put together for one reader travel in, and segments as they lie where a client asks for it:
their headers are not compressed at rest. Records at rest are compressed one by one (`records.delta`), each against its
base; here a window of `WINDOW_LOG` finds what is alike without anybody naming it.
zstd is not imported before the first stream: a process that makes and reads none needs it not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from smartserver.meters import COMPRESSED_IN, COMPRESSED_OUT, COMPRESSION_TIME, DECOMPRESSED_IN, DECOMPRESSED_OUT, here
from smartserver.records.varint import Malformed

if TYPE_CHECKING:
    import zstandard

LEVEL: Final = 9

SEGMENT_LEVEL: Final = 3
"""The level for segments as they lie, whose records are compressed already: level 9 makes them 2 % smaller, three times
slower."""

WINDOW_LOG: Final = 23
"""8 MiB: what a reader must hold, and how far back a writer looks."""

CONTENT_WINDOW_LOG: Final = 21
"""2 MiB, of content bodies: with 8 MiB a tree is 0.6 % smaller and takes a quarter longer."""

_FED: Final = 512
"""Bytes given to the decoder at once. The least block, four bytes, claims 128 KiB: so at most 16 MiB come."""


class BulkWriter:
    """Makes a bulk stream."""

    def __init__(self, level: int = LEVEL, window_log: int = WINDOW_LOG) -> None:
        import zstandard

        parameters = zstandard.ZstdCompressionParameters.from_level(level, window_log=window_log, write_checksum=True)
        self._flush_block, self._flush_end = zstandard.COMPRESSOBJ_FLUSH_BLOCK, zstandard.COMPRESSOBJ_FLUSH_FINISH
        self._zstd: zstandard.ZstdCompressionObj = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    def add(self, text: bytes | memoryview) -> bytes:
        """Take a text, and give what is ready to be sent."""
        start = perf_counter_ns()
        ready = self._zstd.compress(text)
        tally = here.tally
        tally[COMPRESSION_TIME] += perf_counter_ns() - start
        tally[COMPRESSED_IN] += len(text)
        tally[COMPRESSED_OUT] += len(ready)
        return ready

    def flush(self) -> bytes:
        """The bytes that were held back: with them a reader has all that was added."""
        return self._flush(self._flush_block)

    def finish(self) -> bytes:
        """The rest; nothing may be added after that."""
        return self._flush(self._flush_end)

    def _flush(self, how: int) -> bytes:
        start = perf_counter_ns()
        rest = self._zstd.flush(how)
        tally = here.tally
        tally[COMPRESSION_TIME] += perf_counter_ns() - start
        tally[COMPRESSED_OUT] += len(rest)
        return rest


class BulkDecoder:
    """Reads a bulk stream that comes in chunks, cut anywhere."""

    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._zstd = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG).decompressobj()
        self.taken = 0
        """Bytes of the stream so far."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The text of the next bytes, in parts; no more is decoded than is asked for.

        Raises:
            Malformed: they are no bulk stream, or something follows it.
        """
        zstd = self._zstd
        here.tally[DECOMPRESSED_IN] += len(chunk)
        for at in range(0, len(chunk), _FED):
            if zstd.eof:
                raise Malformed(self.taken, "bytes after the end of a bulk stream")
            fed = chunk[at : at + _FED]
            try:
                text = zstd.decompress(fed)
            except self._error as error:
                raise Malformed(self.taken, f"a damaged bulk stream: {error}") from None
            self.taken += len(fed)
            if zstd.unused_data:
                raise Malformed(self.taken - len(zstd.unused_data), "bytes after the end of a bulk stream")
            if text:
                here.tally[DECOMPRESSED_OUT] += len(text)
                yield text

    def finish(self) -> None:
        """Check that it is whole.

        Raises:
            Malformed: it is not.
        """
        if not self._zstd.eof:
            raise Malformed(self.taken, "a bulk stream ends early")


def read_bulk(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a bulk stream that comes in chunks.

    Raises:
        Malformed: it is none, ends early, or something follows it.
    """
    decoder = BulkDecoder()
    for chunk in chunks:
        yield from decoder.feed(chunk)
    decoder.finish()
