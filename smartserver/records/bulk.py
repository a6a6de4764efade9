"""A bulk stream: many texts as one zstd frame, so that their common parts are sent once.

Answers that are made for one client are sent as bulk streams. So are stored segments if a client asks for it, because
their headers are not compressed in packs. Stored records are compressed one by one (`records.delta`), each against its
base; here a window of `WINDOW_LOG` finds common parts without naming them. zstd is not imported before the first
stream, as a process without streams does not need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from smartserver.meters import COMPRESSED_IN, COMPRESSED_OUT, COMPRESSION_TIME, DECOMPRESSED_IN, DECOMPRESSED_OUT, here
from smartserver.records.varint import Malformed

if TYPE_CHECKING:
    import zstandard

LEVEL: Final = 8
"""The level of zstd. Level 9 would make a history of 12,503 revisions 2.3 % smaller, and take a server a third more
time."""

SEGMENT_LEVEL: Final = 3
"""The level for stored segments, whose records are compressed already: level 9 makes them 2 % smaller, three times
slower."""

WINDOW_LOG: Final = 23
"""The base-2 logarithm of the window, 8 MiB. A writer finds common parts within the window, and a reader holds it in
memory."""

CONTENT_WINDOW_LOG: Final = 21
"""The base-2 logarithm of the window of content bodies, 2 MiB. With 8 MiB a tree is 0.6 % smaller and takes a quarter
longer."""

_FED: Final = 512
"""The most bytes given to the decoder at once. A block of four bytes may decode to 128 KiB, so 512 bytes give at most
16 MiB."""


class BulkWriter:
    """Compresses texts into a bulk stream."""

    def __init__(self, level: int = LEVEL, window_log: int = WINDOW_LOG) -> None:
        import zstandard

        parameters = zstandard.ZstdCompressionParameters.from_level(level, window_log=window_log, write_checksum=True)
        self._flush_block, self._flush_end = zstandard.COMPRESSOBJ_FLUSH_BLOCK, zstandard.COMPRESSOBJ_FLUSH_FINISH
        self._zstd: zstandard.ZstdCompressionObj = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    def add(self, text: bytes | memoryview) -> bytes:
        """Add a text, and return the bytes that are ready to be sent."""
        start = perf_counter_ns()
        ready = self._zstd.compress(text)
        tally = here.tally
        tally[COMPRESSION_TIME] += perf_counter_ns() - start
        tally[COMPRESSED_IN] += len(text)
        tally[COMPRESSED_OUT] += len(ready)
        return ready

    def flush(self) -> bytes:
        """Return the buffered bytes, so that a reader can decode all texts added so far."""
        return self._flush(self._flush_block)

    def finish(self) -> bytes:
        """Return the last bytes of the stream. Nothing may be added afterwards."""
        return self._flush(self._flush_end)

    def _flush(self, how: int) -> bytes:
        start = perf_counter_ns()
        rest = self._zstd.flush(how)
        tally = here.tally
        tally[COMPRESSION_TIME] += perf_counter_ns() - start
        tally[COMPRESSED_OUT] += len(rest)
        return rest


class BulkDecoder:
    """Decodes a bulk stream that arrives in chunks of any length."""

    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._zstd = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG).decompressobj()
        self.taken = 0
        """The number of bytes of the stream that were decoded so far."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Decode the next bytes of the stream, and yield their text in parts, each decoded on demand.

        Raises:
            Malformed: the bytes are not a bulk stream, or follow its end.
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
        """Check that the stream is complete.

        Raises:
            Malformed: the stream is incomplete.
        """
        if not self._zstd.eof:
            raise Malformed(self.taken, "a bulk stream ends early")


def read_bulk(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Decode a bulk stream that arrives in chunks.

    Raises:
        Malformed: the chunks are not a bulk stream, end early, or continue after its end.
    """
    decoder = BulkDecoder()
    for chunk in chunks:
        yield from decoder.feed(chunk)
    decoder.finish()
