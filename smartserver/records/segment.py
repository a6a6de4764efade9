"""The bytes of a revision: a header that names its parents and records, then the records' frames.

Disk, push and pull use the same bytes, so a segment that this module accepts is stored and sent on unchanged. No value
may have two legal forms, and every count and length is checked before it is used.

    segment = length revision parents records frame*        length: bytes that follow it
    revision = bytes                                        bytes: a length, then so many bytes
    parents = count (length << 1 | absent, id)*
    records = count (kind u8, encoding u8, key, meta, base, text length, frame length, check?)*
    key = bytes                                             empty if it is the revision's own id
    base = 0 | 1 bytes | 2+2i | 3+2i                        none, a key, entry i, the key that is parent i's id
    graph = length count (revision, count (0 parent | distance)*)*
"""

from __future__ import annotations

import functools
import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from smartserver.errors import LimitExceeded, shown
from smartserver.records import limits
from smartserver.records.announced import BYTES_OF_GRAPH, PARENTS_OF_GRAPH, REVISIONS_OF_GRAPH, AnnouncedGraph
from smartserver.records.check import check_bytes
from smartserver.records.keys import ABSENT, KeyTable
from smartserver.records.model import BaseTag, Entry, GraphNode, Kind, Parent, RevisionId, Segment, made
from smartserver.records.varint import MAX_BYTES, Malformed, decode, encode

Buffer = bytes | bytearray | memoryview

STORED: Final = 0
"""The encoding of a frame that is the text itself."""

ZSTD: Final = 1
"""The encoding of a zstd frame whose prefix is the text of the base."""

HUNKS: Final = 3
"""The encoding of a frame that has the hunks against the base (`records.hunks`)."""

ZSTD_HUNKS: Final = 4
"""The encoding of hunks in a zstd frame without prefix, after an integer that is their length."""

_ON_A_BASE: Final = (HUNKS, ZSTD_HUNKS)

_LEAST_ENTRY: Final = 7
"""Bytes of the shortest record header, by which a reader refuses a count of records that cannot fit into the bytes."""


def encode_segment(
    revision: RevisionId,
    parents: Sequence[Parent],
    entries: Sequence[Entry],
    frames: Sequence[bytes],
    kinds: Sequence[Kind],
) -> bytes:
    """Encode the segment of `revision`: its records' headers and, in the same order, their frames.

    Raises:
        LimitExceeded: the segment, a count in it or a text is over its limit.
    """
    return b"".join((encode_header(revision, parents, entries, sum(map(len, frames)), kinds), *frames))


def encode_header(
    revision: RevisionId, parents: Sequence[Parent], entries: Sequence[Entry], size: int, kinds: Sequence[Kind]
) -> bytes:
    """Encode the header of a segment whose frames have `size` bytes.

    The entries must describe the frames and one another as `decode_segment` requires. This is not checked here, because
    the reader of the segment checks it.
    """
    _limit("parents of a revision", len(parents), limits.MAX_PARENTS)
    _limit("records of a revision", len(entries), limits.MAX_ENTRIES)
    _limit(limits.BYTES_OF_RECORD, max([entry.length for entry in entries], default=0), limits.MAX_RECORD)
    out = [_bytes(revision), encode(len(parents))]
    for parent in parents:
        out += (encode(len(parent.id) << 1 | parent.absent), parent.id)
    out.append(encode(len(entries)))
    check_lengths = _kinds(tuple(kinds)).check
    for entry in entries:
        if len(entry.check) != check_lengths[entry.kind]:
            raise ValueError(f"record {shown(entry.key)} has a check of {len(entry.check)} bytes")
        kind, encoding, key, meta, base, base_key, text_length, frame_length, check = entry
        out += (
            bytes((kind, encoding)),
            b"\0" if key == revision else _bytes(key),
            _bytes(meta) if meta else b"\0",
            encode(base),
            _bytes(base_key) if base == BaseTag.FULL_KEY else b"",
            encode(text_length),
            encode(frame_length),
            check,
        )
    header = b"".join(out)
    length = len(header) + size
    _limit(limits.BYTES_OF_SEGMENT, length, limits.MAX_SEGMENT)
    return encode(length) + header


def decode_segment(buf: Buffer, at: int, kinds: Sequence[Kind]) -> Segment:
    """Decode the header of the segment at `at`; its frames need not be in `buf`.

    Raises:
        Malformed: the bytes are not a segment.
        LimitExceeded: a length or count is over its limit.
    """
    start = at
    length, at = decode(buf, at)
    body = at
    _limit(limits.BYTES_OF_SEGMENT, length, limits.MAX_SEGMENT)
    if not isinstance(buf, bytes):
        # The model holds bytes, and reading a memoryview byte by byte is slower.
        buf = bytes(buf[start : body + length])
        body, at, start = body - start, at - start, 0
    revision, at = _read_bytes(buf, at, "revision id", 1, limits.MAX_ID)
    parents, at = _read_parents(buf, at, revision)
    entries, headers, at = _read_entries(buf, at, revision, parents, _kinds(tuple(kinds)))
    if at - body + sum([entry.frame_length for entry in entries]) != length:
        raise Malformed(start, f"header and frames do not add up to the segment's {length} bytes")
    if start:
        headers = [header - start for header in headers]
    return Segment(revision, parents, entries, at - start, body - start + length, tuple(headers))


def decode_parents(buf: Buffer, at: int) -> tuple[Parent, ...]:
    """Decode the parents of the segment at `at`; the bytes after them need not be in `buf`.

    Raises:
        Malformed: the bytes are not a segment, or `buf` ends within the parents.
        LimitExceeded: a length or count is over its limit.
    """
    return decode_revision(buf, at).parents


def decode_revision(buf: Buffer, at: int) -> GraphNode:
    """Decode the revision and parents of the segment at `at`; the bytes after them need not be in `buf`.

    Raises:
        Malformed, LimitExceeded: as in `decode_parents`.
    """
    _, at = decode(buf, at)
    buf = bytes(buf)
    revision, at = _read_bytes(buf, at, "revision id", 1, limits.MAX_ID)
    return GraphNode(revision, _read_parents(buf, at, revision)[0])


def frames(segment: Segment, buf: Buffer, at: int = 0) -> Iterator[memoryview]:
    """Yield the frames of the segment at `at`, in entry order."""
    if len(buf) - at < segment.length:
        raise Malformed(at, f"{len(buf) - at} bytes of a segment of {segment.length}")
    view = memoryview(buf)
    at += segment.frames_at
    for entry in segment.entries:
        yield view[at : at + entry.frame_length]
        at += entry.frame_length


def encode_graph(revisions: Sequence[GraphNode]) -> bytes:
    """Encode the graph that announces `revisions`, given parents before children. A revision with an id of 20 bytes
    takes about 24 bytes."""
    _limit(REVISIONS_OF_GRAPH, len(revisions), limits.MAX_ANNOUNCED)
    parent_count = sum([len(parents) for _, parents in revisions])
    _limit(PARENTS_OF_GRAPH, parent_count, limits.MAX_ANNOUNCED_PARENTS)
    place = KeyTable()
    body = bytearray(encode(len(revisions)))
    for n, (revision, parents) in enumerate(revisions):
        body += _bytes(revision)
        body += encode(len(parents))
        for parent in parents:
            before = ABSENT if parent.absent else place.find(parent.id)
            if before == ABSENT:
                body += b"\0" + encode(len(parent.id) << 1 | parent.absent) + parent.id
            else:
                body += encode(n - before)
        place.number(revision)
    _limit(BYTES_OF_GRAPH, len(body), limits.MAX_GRAPH)
    return encode(len(body)) + body


def read_length(head: Buffer) -> tuple[int, int]:
    """Read the length at the start of a segment or graph. Return it and the number of bytes that encode it; both are 0
    if they are cut off.

    Raises:
        Malformed: the length is invalid.
    """
    if len(head) < MAX_BYTES and all(byte & 0x80 for byte in head):
        return 0, 0
    return decode(head, 0)


class SegmentStream:
    """Splits a stream into the announced graph, if the stream begins with one, and whole segments. It buffers at most
    one incomplete segment, of at most `limit` bytes."""

    def __init__(
        self, *, graph_first: bool, limit: int = limits.MAX_SEGMENT, charge: Callable[[int], None] = lambda steps: None
    ) -> None:
        """`graph_first`: True if the stream begins with a graph. `charge`: as in `AnnouncedGraph`."""
        self._charge = charge
        self._limit = limit
        self._graph_due = graph_first
        self._graph: AnnouncedGraph | None = None
        self._whole: deque[bytes] = deque()
        self._rest: io.BytesIO | None = None
        self._due = 0
        self._taken = 0

    def feed(self, chunk: Buffer) -> None:
        """Add the next bytes of the stream. A chunk may end inside a segment.

        Raises:
            Malformed: the bytes are not segments.
            LimitExceeded: a segment or the graph is longer than its limit.
        """
        at = 0
        end = len(chunk)
        while at < end:
            if self._rest is None:
                # The length is checked first, so that no bytes are gathered of a segment that will be refused.
                total = self._total(chunk[at : at + MAX_BYTES])
                if total and total <= end - at:
                    self._take(bytes(chunk[at : at + total]))
                    at += total
                    continue
                self._rest = io.BytesIO()
                self._due = total
            if not self._due:
                self._rest.write(chunk[at : at + 1])
                self._due = self._total(self._rest.getvalue())
                at += 1
            else:
                at += self._rest.write(chunk[at : at + self._due - self._rest.tell()])
            if self._rest.tell() == self._due:
                # BytesIO returns its own buffer here, without a copy: a large segment is never held twice.
                whole, self._rest = self._rest.getvalue(), None
                self._take(whole)

    def graph(self) -> AnnouncedGraph | None:
        """Return the announced graph; None if the stream announces none, or its graph is not complete yet."""
        return self._graph

    def segments(self) -> Iterator[bytes]:
        """Yield the complete segments that were not yielded before."""
        while self._whole:
            yield self._whole.popleft()

    def finish(self) -> None:
        """Check that the stream ended at the end of a segment.

        Raises:
            Malformed: the stream ended within a segment or the graph, or before the graph.
        """
        if self._rest is not None:
            raise Malformed(self._taken, f"the stream ends {self._rest.tell()} bytes into a segment or graph")
        if self._graph_due:
            raise Malformed(self._taken, "the stream ends before its graph")

    def _total(self, head: Buffer) -> int:
        """Return the size in bytes of the segment or graph that begins with `head`; 0 if its length is cut off."""
        try:
            length, size = read_length(head)
        except Malformed as error:
            raise Malformed(self._taken, error.why) from None
        if not size:
            return 0
        if self._graph_due:
            _limit(BYTES_OF_GRAPH, length, limits.MAX_GRAPH)
        else:
            _limit(limits.BYTES_OF_SEGMENT, length, self._limit)
        return size + length

    def _take(self, whole: bytes) -> None:
        if self._graph_due:
            self._graph = AnnouncedGraph(whole, self._charge)
            self._graph_due = False
        else:
            self._whole.append(whole)
        self._taken += len(whole)


class _Kinds:
    """The properties of a repository's kinds that a reader of record headers needs, by index."""

    __slots__ = ("base", "check", "count")

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.count = len(kinds)
        self.check = [check_bytes(kind) for kind in kinds]
        self.base = [kind.base for kind in kinds]


@functools.lru_cache(maxsize=16)
def _kinds(kinds: tuple[Kind, ...]) -> _Kinds:
    return _Kinds(kinds)


def _limit(what: str, value: int, most: int) -> None:
    if value > most:
        raise LimitExceeded(what, value, most)


def _bytes(value: bytes) -> bytes:
    return encode(len(value)) + value


def _read_bytes(buf: bytes, at: int, what: str, least: int, most: int) -> tuple[bytes, int]:
    begin = at + 1
    if at >= len(buf) or (length := buf[at]) >= 0x80:  # Nearly all lengths are one byte.
        length, begin = decode(buf, at)
    if length > most:
        _limit(f"bytes of a {what}", length, most)
    end = begin + length
    if length < least or end > len(buf):
        raise Malformed(at, f"a {what} is empty or cut off")
    return buf[begin:end], end


def _read_count(buf: bytes, at: int, what: str, most: int, least_bytes: int) -> tuple[int, int]:
    count, end = decode(buf, at)
    _limit(what, count, most)
    if count * least_bytes > len(buf) - end:
        raise Malformed(at, f"{what}: {count} cannot lie in {len(buf) - end} bytes")
    return count, end


def _read_parents(buf: bytes, at: int, revision: RevisionId) -> tuple[tuple[Parent, ...], int]:
    count, at = _read_count(buf, at, "parents of a revision", limits.MAX_PARENTS, 2)
    parents = []
    for _ in range(count):
        begin = at
        tag, at = decode(buf, begin)
        length = tag >> 1
        _limit("bytes of a parent's id", length, limits.MAX_ID)
        parent = Parent(buf[at : at + length], bool(tag & 1))
        at += length
        if not length or at > len(buf):
            raise Malformed(begin, "a parent's id is empty or cut off")
        if parent.id == revision:
            raise Malformed(begin, f"revision {shown(revision)} is its own parent")
        parents.append(parent)
    return tuple(parents), at


def _read_entries(
    buf: bytes, at: int, revision: RevisionId, parents: tuple[Parent, ...], kinds: _Kinds
) -> tuple[tuple[Entry, ...], list[int], int]:
    """Decode the entries of a segment. Return the entries, the offset of each, and the offset after the last."""
    count, at = _read_count(buf, at, "records of a revision", limits.MAX_ENTRIES, _LEAST_ENTRY)
    entries: list[Entry] = []
    headers: list[int] = []
    seen: set[tuple[int, bytes]] = set()
    text = 0
    size = len(buf)
    for _ in range(count):
        begin = at
        headers.append(begin)
        if at + _LEAST_ENTRY > size:
            raise Malformed(at, "a record's header is cut off")
        kind = buf[at]
        encoding = buf[at + 1]
        if kind >= kinds.count:
            raise Malformed(at, f"kind {kind}, but the repository has {kinds.count}")
        if encoding > ZSTD and encoding not in _ON_A_BASE:
            raise Malformed(at + 1, f"unknown encoding {encoding}")
        key, at = _read_bytes(buf, at + 2, "record key", 0, limits.MAX_ID)
        if key == revision:
            raise Malformed(begin + 2, "a key that is the revision's id is not written as empty")
        key = key or revision
        if (kind, key) in seen:
            raise Malformed(begin, f"record {shown(key)} comes twice")
        seen.add((kind, key))
        if at < size and not buf[at]:
            meta, at = b"", at + 1
        else:
            meta, at = _read_bytes(buf, at, "record's meta", 0, limits.MAX_META)
        base, at = decode(buf, at)
        base_key = b""
        if base:
            if base == BaseTag.FULL_KEY:
                base_key, at = _read_bytes(buf, at, "base key", 1, limits.MAX_ID)
            _check_base(begin, kinds.base[kind], kind, encoding, key, base, base_key, parents, entries)
        elif encoding in _ON_A_BASE:
            raise Malformed(begin, "hunks without a base")
        length, at = decode(buf, at)
        frame_length, at = decode(buf, at)
        if length > limits.MAX_RECORD:
            _limit(limits.BYTES_OF_RECORD, length, limits.MAX_RECORD)
        if encoding == STORED and length != frame_length:
            raise Malformed(begin, f"a stored frame of {frame_length} bytes for a text of {length}")
        check = b""
        if check_length := kinds.check[kind]:
            check = buf[at : at + check_length]
            at += check_length
            if at > size:
                raise Malformed(begin, "a record's check is cut off")
        text += length
        entries.append(made(Entry, (kind, encoding, key, meta, base, base_key, length, frame_length, check)))
    _limit("bytes of text in a segment", text, limits.MAX_SEGMENT_TEXT)
    return tuple(entries), headers, at


def _check_base(
    at: int,
    may_have_base: bool,
    kind: int,
    encoding: int,
    key: bytes,
    base: int,
    base_key: bytes,
    parents: tuple[Parent, ...],
    entries: list[Entry],
) -> None:
    """Raise Malformed for a base that no writer may use. The store checks that the base exists, and that this revision
    or an ancestor introduced it."""
    if not may_have_base:
        raise Malformed(at, f"a record of kind {kind} with a base")
    if encoding == STORED:
        raise Malformed(at, "a stored frame with a base")
    if base != BaseTag.FULL_KEY:
        index = (base - 2) >> 1
        if base & 1:
            if index >= len(parents) or parents[index].absent:
                raise Malformed(at, f"its base is parent {index}, which does not exist")
            base_key = parents[index].id
        elif index >= len(entries) or entries[index].kind != kind:
            raise Malformed(at, f"its base is entry {index}, which is not an earlier one of its kind")
        else:
            base_key = entries[index].key
    if base_key == key:
        raise Malformed(at, f"record {shown(key)} has itself as base")
