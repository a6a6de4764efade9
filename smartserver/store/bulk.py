"""`BulkReader`: segments in one bulk stream (`records.bulk`), as stored or with some frames decompressed.

If the clients of a system push hunks, frames that can be read without a base are decompressed. The stream compresses
many of them together, which makes them a third smaller. A record that was sent before in the stream is repeated without
its text: in a history that was converted twice, most versions of files are in two revisions. Large segments are sent
unchanged, while they are read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from smartserver.errors import LimitExceeded
from smartserver.records import bulk
from smartserver.records.delta import decompress, hunks_in
from smartserver.records.model import BaseTag, Entry, Key, Kind
from smartserver.records.native import twin
from smartserver.records.segment import (
    HUNKS,
    STORED,
    ZSTD,
    ZSTD_HUNKS,
    decode_segment,
    encode_segment,
    frames,
    read_length,
)
from smartserver.records.varint import MAX_BYTES, Malformed, decode
from smartserver.store.open_pack import SegmentReader

LARGEST: Final = 4 << 20
"""The most bytes of a segment that is expanded, both before and after the expansion."""

AT_ONCE: Final = 16 << 20
"""The most bytes to which the segments of one read are expanded. Further segments are sent unchanged."""

_ENDLESS: Final = sys.maxsize
"""The size of a segment whose length is damaged."""

REMEMBERED: Final = 200_000
"""The most records of a stream whose names are remembered, in some 30 MB."""


class BulkReader:
    """Compresses segments into a bulk stream while the stream is read. It must be used by one thread at a time."""

    def __init__(self, segments: SegmentReader, expanded: Sequence[Kind] = ()) -> None:
        """`expanded`: the kinds of the repository if its segments are expanded, else empty."""
        self.segments = segments.segments
        self.size = 0
        """The number of bytes of the stream that were read so far."""
        self._reader = segments
        self._expander = SegmentExpander(expanded) if expanded else None
        self._writer: bulk.BulkWriter | None = bulk.BulkWriter(bulk.LEVEL if expanded else bulk.SEGMENT_LEVEL)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; empty at the end. All whole segments that were read from the store are
        flushed, so that a client keeps them if it is disconnected."""
        while not self._rest and self._writer is not None:
            content = self._reader.read(size)
            is_last = not self._reader.left
            if self._expander is not None:
                content = self._expander.feed(content, is_last)
            if is_last:
                self._rest = self._writer.add(content) + self._writer.finish()
                self._writer = None
            elif content:  # Else a part of a segment was read.
                self._rest = self._writer.add(content) + self._writer.flush()
        read, self._rest = self._rest[:size], self._rest[size:]
        self.size += len(read)
        return read


@twin
class SegmentExpander:
    """Decompresses those frames in a stream of segments that can be decompressed without a base."""

    def __init__(
        self, kinds: Sequence[Kind], *, largest: int = LARGEST, at_once: int = AT_ONCE, remembered: int = REMEMBERED
    ) -> None:
        self._kinds = kinds
        self._largest = largest
        self._at_once = at_once
        self._remembered = remembered
        self._begun = b""
        """The first bytes of a segment whose end was not read yet."""
        self._passing = 0
        """The number of bytes of a large segment that were not read yet. They are returned unchanged."""
        self._sent = set[tuple[int, Key]]()
        """The kinds and keys of records that were returned before."""

    def feed(self, content: bytes, is_last: bool) -> bytes:
        """Add the next bytes of the stream. Return the segments that are complete now, expanded, and the bytes of large
        ones. A damaged segment is returned unchanged, because the client will report it."""
        content = self._begun + content
        room = self._at_once
        parts: list[bytes] = []
        at = 0
        while at < len(content):
            if not self._passing:
                size = _size(content[at : at + MAX_BYTES])
                if not size:
                    break
                if size > self._largest or room <= 0:
                    self._passing = size
                elif at + size > len(content):
                    break
                else:
                    parts.append(self._expand(content[at : at + size]))
                    room -= len(parts[-1])
                    at += size
            if self._passing:
                parts.append(content[at : at + self._passing])
                self._passing -= len(parts[-1])
                at += len(parts[-1])
        self._begun = content[at:]
        if is_last:
            parts.append(self._begun)
        return b"".join(parts)

    def _expand(self, content: bytes) -> bytes:
        """Return the expanded segment; return it unchanged if it is damaged or would become too large."""
        try:
            return self._expand_sound(content)
        except (Malformed, LimitExceeded):
            return content

    def _expand_sound(self, content: bytes) -> bytes:
        segment = decode_segment(content, 0, self._kinds)
        room = self._largest
        entries: list[Entry] = []
        bodies: list[bytes] = []
        for entry, frame in zip(segment.entries, frames(segment, content), strict=True):
            body, encoding = bytes(frame), entry.encoding
            if (entry.kind, entry.key) in self._sent and entry.key != segment.revision:
                entries.append(
                    entry._replace(encoding=STORED, base=BaseTag.NONE, base_key=b"", length=0, frame_length=0)
                )
                bodies.append(b"")
                continue
            if encoding == ZSTD_HUNKS:
                if decode(body, 0)[0] > room:
                    return content
                body, encoding = hunks_in(ZSTD_HUNKS, body), HUNKS
            elif encoding == ZSTD and entry.base == BaseTag.NONE and entry.length <= room:
                body, encoding = decompress(ZSTD, body, entry.length), STORED
            room -= len(body)
            if room < 0:
                return content
            entries.append(entry._replace(encoding=encoding, frame_length=len(body)))
            bodies.append(body)
        if len(self._sent) < self._remembered:
            self._sent.update([(entry.kind, entry.key) for entry in segment.entries])
        return encode_segment(segment.revision, segment.parents, entries, bodies, self._kinds)


def _size(head: bytes) -> int:
    """Return the size in bytes of the segment that begins with `head`; 0 if its length is cut off, `_ENDLESS` if the
    length is damaged."""
    try:
        return sum(read_length(head))
    except Malformed:
        return _ENDLESS
