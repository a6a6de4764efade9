"""A second decoder, written from doc/spec/disk.md and doc/spec/wire.md alone: packs, and the bytes of a connection.

It imports nothing of the project. What else must hold of the bytes than that they can be read is in `second_rules`.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import msgspec
from second_bulk import plain
from second_frames import text_of

Kinds = list[dict[str, Any]]  # name, check and base of each
Parents = list[tuple[bytes, bool]]  # id and whether it is absent

OBJECT: Kinds = [{"name": "object", "check": "git-sha1", "base": True}]  # the kinds of `git sha1`
REQUEST, BODY, END, REPLY, ERROR, WITH_BODY = 1, 2, 3, 4, 5, 0x40


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

    def take(self, count: int) -> bytes:
        must(self.at + count <= self.end, "nothing ends in the middle")
        self.at += count
        return self.data[self.at - count : self.at]

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def integer(self) -> int:
        value = shift = 0
        while (byte := self.take(1)[0]) > 127:
            value, shift = value | (byte & 127) << shift, shift + 7
        must((byte > 0 or shift == 0) and shift < 63, "an integer has its shortest form and at most 63 bits")
        return value | byte << shift

    def string(self) -> bytes:
        return self.take(self.integer())

    def parent(self, form: int) -> tuple[bytes, bool]:
        return self.take(form >> 1), bool(form & 1)


@dataclass
class Record:
    kind: int
    encoding: int
    key: bytes
    meta: bytes
    form: int  # how its base is named
    base: bytes | None  # its key
    length: int
    check: bytes
    header_at: int
    frame_at: int = 0
    frame: bytes = b""


@dataclass
class Segment:
    revision: bytes
    parents: Parents
    records: list[Record]
    at: int
    data: bytes


def read_segment(cursor: Cursor, kinds: Kinds) -> Segment:
    start, length = cursor.at, cursor.integer()
    inner = Cursor(cursor.data, cursor.at, cursor.at + len(cursor.take(length)))
    revision = inner.string()
    parents, records, frames = [inner.parent(inner.integer()) for _ in range(inner.integer())], list[Record](), []
    for _ in range(inner.integer()):
        at, (kind, encoding) = inner.at, inner.take(2)
        key, meta, form = inner.string() or revision, inner.string(), inner.integer()
        named = [parent for parent, _ in parents] if form % 2 else [record.key for record in records]
        must(form // 2 <= len(named), "a base is a parent or an earlier entry")
        base = inner.string() if form == 1 else named[form // 2 - 1] if form else None
        size, frame = inner.integer(), inner.integer()
        check = inner.take(16) if kinds[kind]["check"] == "blake2b-128" else b""
        records.append(Record(kind, encoding, key, meta, form, base, size, check, at))
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


def decode(record: Record, base: bytes) -> bytes:
    """Decode the text of a record, given its base's text (empty for none)."""
    return text_of(record.encoding, record.frame, base)


def read_pack(data: bytes) -> tuple[Kinds, list[Segment]]:
    cursor, kinds = Cursor(data, 0, len(data) - 16), []
    magic, version, flags, header, count = cursor.unpack("<8sBBHB")
    must((magic, version, flags) == (b"hpss-pak", 1, 0), "a pack begins with its magic")
    for _ in range(count):
        name, check = (cursor.take(cursor.take(1)[0]).decode() for _ in range(2))
        kinds.append({"name": name, "check": check, "base": bool(cursor.take(1)[0])})
    must(cursor.at == header and blake(data[:-16]) == data[-16:], "a pack ends with the hash of all that precedes")
    return kinds, read_segments(cursor, kinds)


def read_graph(cursor: Cursor) -> list[tuple[bytes, Parents]]:
    end, graph = cursor.integer() + cursor.at, list[tuple[bytes, Parents]]()
    for _ in range(cursor.integer()):
        revision, parents = cursor.string(), list[tuple[bytes, bool]]()
        for _ in range(cursor.integer()):
            back = cursor.integer()
            must(back <= len(graph), "a parent is listed before its child")
            parents.append((graph[-back][0], False) if back else cursor.parent(cursor.integer()))
        graph.append((revision, parents))
    must(cursor.at == end, "a graph is as long as it says")
    return graph


def read_frames(data: bytes) -> list[tuple[int, int, bytes]]:
    """Read what one side of a connection sent: type, request id and payload of each frame."""
    must(data.startswith(b"hpss/1\n"), "a side begins with the opening line")
    cursor, frames = Cursor(data, 7), []
    while cursor.at < cursor.end:
        length, kind, request = cursor.unpack(">IBI")
        frames.append((kind, request, cursor.take(length)))
    return frames


@dataclass
class Exchange:
    """A request, and what became of it."""

    id: bytes
    path: str
    calls: list[list[Any]]
    flags: int
    fault: list[Any] | None  # of an ERROR
    outcomes: list[list[Any]]
    state: list[Any] | None
    graph: list[tuple[bytes, Parents]]
    up: list[Segment]
    down: list[Segment]


def read_dialog(client: bytes, server: bytes, kinds: Kinds = OBJECT) -> list[Exchange]:
    """Read the bytes that went each way over a connection, all of whose requests are over."""
    sides, found = (read_frames(client), read_frames(server)), []
    for request in sorted({request for _, request, _ in sides[0]} - {0}):
        said = list[dict[int, bytes]]()
        for side in sides:
            own = [(kind & ~WITH_BODY, payload) for kind, name, payload in side if name == request]
            said.append({kind: b"".join(payload for k, payload in own if k == kind) for kind, _ in own})
        path, name, _, calls, flags = (*msgspec.msgpack.decode(said[0][REQUEST]), 0)[:5]
        answer = msgspec.msgpack.decode(said[1][ERROR if ERROR in said[1] else REPLY])
        fault = answer.pop(0) if ERROR in said[1] else None
        outcomes, state = (*answer, *([], None)[len(answer) :])[:2]
        up, down = map(Cursor, plain(said, flags, calls))
        graph = read_graph(up) if flags & 8 and up.data else []
        bodies = [read_segments(body, kinds) for body in (up, down)]
        found.append(Exchange(name, path, calls, flags, fault, outcomes, state, graph, *bodies))
    return found
