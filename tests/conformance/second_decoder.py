"""A second decoder, written from the texts alone: segments, announced graphs and packs, as doc/spec/disk.md has them.

It imports nothing of the project. Bytes that break a rule of the texts are `Damaged`.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import zstandard

Kinds = list[dict[str, Any]]  # name, check and base of each
Parents = list[tuple[bytes, bool]]  # id and whether it is absent

ZSTD = bytes.fromhex("28b52ffd")


class Damaged(Exception):
    """The bytes are not what the texts say."""


def must(holds: bool, rule: str) -> None:
    if not holds:
        raise Damaged(rule)


def blake(data: bytes, size: int = 16) -> bytes:
    return hashlib.blake2b(data, digest_size=size).digest()


class Cursor:
    """Reads on from a place in some bytes; `at` counts from their start."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    @classmethod
    def hashed(cls, data: bytes) -> Cursor:
        """All of a file but the hash at its end."""
        must(blake(data[:-16]) == data[-16:], "a file ends with the hash of all that precedes")
        return cls(data, 0, len(data) - 16)

    def take(self, count: int) -> bytes:
        must(self.at + count <= self.end, "nothing ends in the middle")
        self.at += count
        return self.data[self.at - count : self.at]

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def integer(self) -> int:
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                must(byte > 0 or shift == 0, "an integer has its shortest form")
                return value
        raise Damaged("an integer has at most 63 bits")

    def string(self) -> bytes:
        return self.take(self.integer())

    def parent(self, form: int) -> tuple[bytes, bool]:
        return self.take(form >> 1), bool(form & 1)


@dataclass
class Record:
    """A record as its header says; a repository adds text, depth, chain and the place of its pack."""

    kind: int
    encoding: int
    key: bytes
    meta: bytes
    base: bytes | None  # its key
    length: int
    check: bytes
    header_at: int
    frame_at: int = 0
    frame: bytes = b""
    text: bytes = b""
    depth: int = 0
    chain: int = 0
    place: int = -1

    @property
    def name(self) -> bytes:
        return bytes([self.kind]) + self.key

    @property
    def base_name(self) -> bytes | None:
        return None if self.base is None else bytes([self.kind]) + self.base


@dataclass
class Segment:
    revision: bytes
    parents: Parents
    records: list[Record]
    at: int
    data: bytes

    @property
    def present(self) -> list[bytes]:
        return [parent for parent, absent in self.parents if not absent]


def read_segment(cursor: Cursor, kinds: Kinds) -> Segment:
    start, length = cursor.at, cursor.integer()
    inner = Cursor(cursor.data, cursor.at, cursor.at + length)
    cursor.take(length)
    revision = inner.string()
    parents = [inner.parent(inner.integer()) for _ in range(inner.integer())]
    must(0 < len(revision) <= 1024 and revision not in dict(parents), "a revision is not its own parent")
    records: list[Record] = []
    frames = []
    for _ in range(inner.integer()):
        at, (kind, encoding) = inner.at, inner.take(2)
        key, meta, form, base = inner.string() or revision, inner.string(), inner.integer(), None
        if form == 1:
            base = inner.string()
        elif form % 2:
            base, absent = parents[(form - 3) // 2]
            must(not absent, "an absent parent is no base")
        elif form:
            must(form // 2 <= len(records) and records[form // 2 - 1].kind == kind, "a base is an earlier entry")
            base = records[form // 2 - 1].key
        size, frame = inner.integer(), inner.integer()
        check = inner.take(16) if kinds[kind]["check"] == "blake2b-128" else b""
        must(encoding == 1 or (encoding == 0 and base is None and size == frame), "a stored record is its text")
        must(base is None or (kinds[kind]["base"] and base != key), "a base is another record, of a kind with bases")
        must((kind, key) not in {(r.kind, r.key) for r in records}, "no two entries have the same kind and key")
        records.append(Record(kind, encoding, key, meta, base, size, check, at))
        frames.append(frame)
    for record, frame in zip(records, frames, strict=True):
        record.frame_at, record.frame = inner.at, inner.take(frame)
    must(inner.at == inner.end, "header and frames fill the segment")
    return Segment(revision, parents, records, start, cursor.data[start : cursor.at])


def read_segments(cursor: Cursor, kinds: Kinds) -> list[Segment]:
    segments = []
    while cursor.at < cursor.end:
        segments.append(read_segment(cursor, kinds))
    return segments


def read_graph(cursor: Cursor) -> list[tuple[bytes, Parents]]:
    """Read an announced graph: revisions and their parents, in the form that segments have."""
    end = cursor.integer() + cursor.at
    graph: list[tuple[bytes, Parents]] = []
    for _ in range(cursor.integer()):
        revision, parents = cursor.string(), list[tuple[bytes, bool]]()
        for _ in range(cursor.integer()):
            back = cursor.integer()
            must(back <= len(graph), "a parent is listed before its child")
            parents.append((graph[-back][0], False) if back else cursor.parent(cursor.integer()))
        graph.append((revision, parents))
    must(cursor.at == end, "a graph is as long as it says")
    return graph


def decode(record: Record, base: bytes) -> bytes:
    """Decode the text of a record, given its base's text (empty for none)."""
    if record.encoding == 0:
        return record.frame
    frame = ZSTD + record.frame
    head = zstandard.get_frame_parameters(frame)
    must(head.content_size == record.length and head.window_size <= 1 << 27, "a frame has the header's length")
    must(not head.has_checksum and not head.dict_id, "a frame has no checksum and no dictionary id")
    blocks, last = Cursor(frame, zstandard.frame_header_size(frame)), 0
    while not last:
        block = int.from_bytes(blocks.take(3), "little")
        last = block & 1
        blocks.take(1 if block >> 1 & 3 == 1 else block >> 3)
    must(blocks.at == blocks.end, "no bytes follow the last block")
    prefix = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if base else None
    return zstandard.ZstdDecompressor(dict_data=prefix, max_window_size=1 << 27).decompress(frame)


@dataclass
class Pack:
    kinds: Kinds
    segments: list[Segment]
    size: int
    hash: bytes


def read_pack(data: bytes) -> Pack:
    cursor = Cursor.hashed(data)
    magic, version, flags, header, count = cursor.unpack("<8sBBHB")
    must((magic, version, flags) == (b"hpss-pak", 1, 0), "a pack begins with its magic")
    kinds = []
    for _ in range(count):
        name, check = (cursor.take(cursor.take(1)[0]).decode() for _ in range(2))
        kinds.append({"name": name, "check": check, "base": bool(cursor.take(1)[0])})
    must(cursor.at == header, "the first segment follows the header")
    return Pack(kinds, read_segments(cursor, kinds), len(data), data[-16:])
