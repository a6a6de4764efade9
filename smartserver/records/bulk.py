"""A bulk stream: many texts as one zstd frame, so that whatever they share is sent once.

It is what answers that are put together for one reader travel in. Records at rest are compressed one by one
(`records.delta`), each against its base; here a window of `WINDOW_LOG` finds what is alike without anybody naming it.
zstd is not imported before the first stream: a process that makes and reads none needs it not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from smartserver.records.varint import Malformed

if TYPE_CHECKING:
    import zstandard

LEVEL: Final = 9

WINDOW_LOG: Final = 23
"""8 MiB: what a reader must hold, and how far back a writer looks."""

_FED: Final = 512
"""Bytes given to the decoder at once. The least block, four bytes, claims 128 KiB: so at most 16 MiB come."""


class BulkWriter:
    """Makes a bulk stream."""

    def __init__(self) -> None:
        import zstandard

        parameters = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=WINDOW_LOG, write_checksum=True)
        self._zstd: zstandard.ZstdCompressionObj = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    def add(self, text: bytes) -> bytes:
        """Take a text, and give what is ready to be sent."""
        return self._zstd.compress(text)

    def finish(self) -> bytes:
        """The rest; nothing may be added after that."""
        return self._zstd.flush()


def read_bulk(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a bulk stream that comes in chunks.

    Raises:
        Malformed: it is none, ends early, or something follows it.
    """
    import zstandard

    zstd = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG).decompressobj()
    taken = 0
    for chunk in chunks:
        for at in range(0, len(chunk), _FED):
            if zstd.eof:
                raise Malformed(taken, "bytes after the end of a bulk stream")
            try:
                text = zstd.decompress(chunk[at : at + _FED])
            except zstandard.ZstdError as wrong:
                raise Malformed(taken, f"a damaged bulk stream: {wrong}") from None
            taken += len(chunk[at : at + _FED])
            if zstd.unused_data:
                raise Malformed(taken - len(zstd.unused_data), "bytes after the end of a bulk stream")
            if text:
                yield text
    if not zstd.eof:
        raise Malformed(taken, "a bulk stream ends early")
