"""`BulkReader`: segments as they lie, in one bulk stream (`records.bulk`); none of them is encoded again."""

from __future__ import annotations

from smartserver.records.bulk import SEGMENT_LEVEL, BulkWriter
from smartserver.store.segment_reader import SegmentReader


class BulkReader:
    """The bytes of a bulk stream over segments, front to back; for one thread at a time."""

    def __init__(self, segments: SegmentReader) -> None:
        self.segments = segments.segments
        """In all."""
        self.size = 0
        """Bytes of the stream read so far."""
        self._reader = segments
        self._writer: BulkWriter | None = BulkWriter(SEGMENT_LEVEL)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty at the end.

        What was read of the store is in them whole, so that whoever has them has those segments, whatever comes after.

        Raises:
            NoSuchFile, CorruptFile, TransportFailed: as `SegmentReader.read`.
        """
        if not self._rest and self._writer is not None:
            content = self._reader.read(size)
            if self._reader.left:
                self._rest = self._writer.add(content) + self._writer.flush()
            else:
                self._rest = self._writer.add(content) + self._writer.finish()
                self._writer = None
        read, self._rest = self._rest[:size], self._rest[size:]
        self.size += len(read)
        return read
