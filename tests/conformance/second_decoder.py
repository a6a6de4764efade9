"""A second decoder, written from the texts alone: doc/spec/disk.md and doc/spec/wire.md.

It imports nothing of the project. What it cannot read, or what breaks a rule of the texts, is `Damaged`.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import zstandard

OBJECT = [{"name": "object", "check": "git-sha1", "base": True}]  # the kinds of `git sha1`
TYPES = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
ZSTD = bytes.fromhex("28b52ffd")


class Damaged(Exception):
    """The bytes are not what the texts say."""


def must(holds: bool, rule: str) -> None:
    if not holds:
        raise Damaged(rule)


def blake(data: bytes, size: int = 16) -> bytes:
    return hashlib.blake2b(data, digest_size=size).digest()


class Cursor:
    """Reads on from a place in some bytes; offsets are those of the bytes."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    @classmethod
    def hashed(cls, data: bytes) -> Cursor:
        """All of a file but the hash at its end."""
        must(blake(data[:-16]) == data[-16:], "a file ends with the hash of all that precedes")
        return cls(data, 0, len(data) - 16)

    def take(self, count: int) -> bytes:
        must(self.at + count <= self.end, "the bytes end in the middle of something")
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

    def parent(self) -> tuple[bytes, bool]:
        form = self.integer()
        return self.take(form >> 1), bool(form & 1)


# Segments and packs


@dataclass
class Record:
    """A record as its header says; a repository adds its text, how deep it lies, and its position."""

    kind: int
    encoding: int
    key: bytes
    meta: bytes
    base: bytes | None
    length: int
    header_at: int
    frame_at: int
    frame: bytes
    text: bytes = b""
    depth: int = 0
    chain: int = 0
    position: tuple[int, int] = (0, 0)

    @property
    def digest(self) -> bytes:
        return blake(bytes([self.kind]) + self.key, 20)


@dataclass
class Segment:
    revision: bytes
    parents: list[tuple[bytes, bool]]  # id, absent
    records: list[Record]
    at: int
    data: bytes


def read_segment(cursor: Cursor, kinds: list[dict[str, Any]]) -> Segment:
    start, length = cursor.at, cursor.integer()
    inner = Cursor(cursor.data, cursor.at, cursor.at + length)
    cursor.take(length)
    revision = inner.string()
    parents = [inner.parent() for _ in range(inner.integer())]
    must(0 < len(revision) <= 1024 and revision not in dict(parents), "a revision is not its own parent")
    records: list[Record] = []
    lengths = []
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
        length, frame = inner.integer(), inner.integer()
        must(kinds[kind]["check"] != "blake2b-128", "here only kinds are read whose keys prove the text")
        must(encoding == 1 or (encoding == 0 and base is None and length == frame), "a stored record is its text")
        must(base is None or (kinds[kind]["base"] and base != key), "a base is another record, of a kind with bases")
        must((kind, key) not in {(r.kind, r.key) for r in records}, "no two entries have the same kind and key")
        records.append(Record(kind, encoding, key, meta, base, length, at, 0, b""))
        lengths.append(frame)
    for record, frame in zip(records, lengths, strict=True):
        record.frame_at, record.frame = inner.at, inner.take(frame)
    must(inner.at == inner.end, "header and frames fill the segment")
    return Segment(revision, parents, records, start, cursor.data[start : cursor.at])


def read_segments(cursor: Cursor, kinds: list[dict[str, Any]]) -> list[Segment]:
    segments = []
    while cursor.at < cursor.end:
        segments.append(read_segment(cursor, kinds))
    return segments


def read_graph(cursor: Cursor) -> list[tuple[bytes, list[tuple[bytes, bool]]]]:
    """Read an announced graph: revisions and their parents, in the form that segments have."""
    end = cursor.integer() + cursor.at
    graph: list[tuple[bytes, list[tuple[bytes, bool]]]] = []
    for _ in range(cursor.integer()):
        revision, count = cursor.string(), cursor.integer()
        back = [cursor.integer() or cursor.parent() for _ in range(count)]
        graph.append((revision, [(graph[-b][0], False) if isinstance(b, int) else b for b in back]))
    must(cursor.at == end, "the graph is as long as it says")
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


def prove(record: Record, check: str) -> None:
    must(check.startswith("git-") and len(record.meta) == 1, "here only git's objects are proved")
    whole = b"%s %d\0%s" % (TYPES[record.meta[0]], len(record.text), record.text)
    must(hashlib.new(check[4:], whole).digest() == record.key, "a text proves its key")


def git_parents(own: Record) -> list[bytes]:
    lines = own.text.partition(b"\n\n")[0].split(b"\n")
    if own.meta == b"\1":
        return [bytes.fromhex(line[7:].decode()) for line in lines if line.startswith(b"parent ")]
    if own.meta == b"\4" and lines[1] in (b"type commit", b"type tag"):
        return [bytes.fromhex(lines[0][7:].decode())]
    return []


@dataclass
class Pack:
    kinds: list[dict[str, Any]]
    segments: list[Segment]
    size: int
    hash: bytes

    @property
    def rows(self) -> list[tuple[Record, int]]:
        """The records and their segments' local ordinals, in the order of an index."""
        rows = [(record, local) for local, segment in enumerate(self.segments) for record in segment.records]
        return sorted(rows, key=lambda row: (row[0].digest, row[0].header_at))


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


# Indexes

COLUMNS = (
    "fanout F I, digests R 20s, headers R Q, frames R Q, frame_lengths R I, text_lengths R I, bases R I, segments R I, "
    "chains R I, lineages R I, depths R B, offsets S1 Q, id_offsets S1 I, by_id S I, starts S1 I, parents P I, "
    "external_offsets B1 I, outside_offsets O1 I"
)


class Index:
    """An index: its columns and tables by name."""

    def __init__(self, data: bytes) -> None:
        cursor = Cursor.hashed(data)
        magic, version, flags, self.bits, zero, *counts, self.size, self.hash = cursor.unpack("<8s4B5IQ16s")
        must((magic, version, flags, zero) == (b"hpss-idx", 1, 0, 0), "an index begins with its magic")
        many = dict(zip("RSPBO", counts, strict=True)) | {"F": (1 << self.bits) + 1}
        self.columns: dict[str, list[Any]] = {}
        for name, count, form in (column.split() for column in COLUMNS.split(", ")):
            items = cursor.take((many[count[0]] + len(count) - 1) * struct.calcsize("<" + form))
            self.columns[name] = [item for (item,) in struct.iter_unpack("<" + form, items)]
            must(not any(cursor.take(-cursor.at % 8)), "zeros follow a column")
        for name in ("id", "external", "outside"):
            offsets = self.columns.pop(f"{name}_offsets")
            table = cursor.take(offsets[-1])
            self.columns[name] = [table[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]
            must(not any(cursor.take(-cursor.at % 8)), "zeros follow a table")
        must(cursor.at == cursor.end, "the columns and tables fill the index")

    def find(self, kind: int, key: bytes) -> int | None:
        """Find the first row of a key."""
        digests, wanted = self.columns["digests"], blake(bytes([kind]) + key, 20)
        low, high = self.columns["fanout"][int.from_bytes(wanted) >> (160 - self.bits) :][:2]
        row = bisect_left(digests, wanted, low, high)
        return row if row < high and digests[row] == wanted else None


# Repositories


@dataclass
class Repository:
    """A repository on disk, every record of it decoded and proved and every index compared with its pack."""

    path: Path
    root: list[Any] = field(default_factory=list)
    refs: dict[bytes, list[list[Any]]] = field(default_factory=dict)
    log: list[list[Any]] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    copies: dict[tuple[int, bytes], Record] = field(default_factory=dict)  # at the lowest position
    holders: dict[tuple[int, bytes], set[bytes]] = field(default_factory=dict)  # the revisions that introduced it
    ancestors: dict[bytes, set[bytes]] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)  # the pack of each revision

    def __post_init__(self) -> None:
        must(self._file("format") == b"smartserver repository 1 swap=file\n", "the format is known")
        payload, check = msgspec.msgpack.decode(self._file("root"))
        must(blake(payload) == check, "a root has the hash of its payload")
        self.root = msgspec.msgpack.decode(payload)
        must(not self.root[3] and not self.root[16], "there are no features to know, and the repository is there")
        self.refs = {ref: msgspec.msgpack.decode(tips) for ref, tips in self._table("refs").items()}
        for _first, last, _time, length, check, name in self.root[15]:
            cursor = self._named(f"log/{last}-{name.hex()}", length, check)
            must((head := cursor.unpack("<8sHHI"))[:3] == (b"hpss-log", 1, 0), "a log file begins with its magic")
            self.log += msgspec.msgpack.decode(cursor.data[cursor.at : cursor.end])
            must(self.log[-1][0] == last and head[3] <= len(self.log), "a log file has the entries that are named")
        self.log += self.root[12]
        for name, length, check, index_length, index_check, segments, records in self.root[7]:
            pack = read_pack(self._named(f"packs/{name.hex()}.pack", length, check).data)
            must(pack.kinds == self.root[6], "the kinds are the root's")
            must((len(pack.segments), len(pack.rows)) == (segments, records), "the root counts segments and records")
            for segment in pack.segments:
                self._place(segment, [kind["check"] for kind in pack.kinds])
            self.packs.append(pack)
            self.indexes.append(Index(self._named(f"packs/{name.hex()}.idx", index_length, index_check).data))
            self._compare(pack, self.indexes[-1])

    def __iter__(self) -> Iterator[Record]:
        return (record for pack in self.packs for segment in pack.segments for record in segment.records)

    def _file(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def _named(self, name: str, length: int, check: bytes) -> Cursor:
        data = self._file(name)
        must((len(data), data[-16:]) == (length, check), "a file is the one that the root names")
        return Cursor.hashed(data)

    def _table(self, name: str) -> dict[bytes, bytes]:
        _kind, found, file = self.root[10][name]
        if file is not None:
            cursor = self._named(f"tables/{file[0].hex()}", *file[1:3])
            must(cursor.unpack("<8sHHI") == (b"hpss-tbl", 1, 0, file[3]), "a table file begins with its magic")
            offsets = cursor.unpack(f"<{file[3] + 1}I")
            for begin, end in zip(offsets, offsets[1:], strict=False):
                entry = Cursor(cursor.data, cursor.at + begin, cursor.at + end)
                must(entry.unpack("<I")[0] == zlib.crc32(entry.data[entry.at : entry.end]), "an entry has its CRC")
                key = entry.take(entry.unpack("<H")[0])
                found[key] = entry.take(entry.end - entry.at)
            must(cursor.at + offsets[-1] == cursor.end, "the entries fill a table file")
        changed = found | self.root[11].get(name, {})
        return {key: value for key, value in changed.items() if value is not None}

    def _place(self, segment: Segment, checks: list[str]) -> None:
        """Decode and prove what a segment holds, and add it to what is known."""
        place, revision = len(self.packs), segment.revision
        present = [parent for parent, absent in segment.parents if not absent]
        must(all(parent in self.ancestors for parent in present), "a parent lies at a lower ordinal")
        must(revision not in self.ancestors, "a revision has one segment in a repository")
        self.ancestors[revision] = {revision}.union(*(self.ancestors[parent] for parent in present))
        self.places[revision] = place
        for record in segment.records:
            record.position, text = (place, record.header_at), b""
            if record.base is not None:
                must(bool(self.holders[record.kind, record.base] & self.ancestors[revision]), "an ancestor has a base")
                base = self.copies[record.kind, record.base]
                record.depth, record.chain, text = base.depth + 1, base.chain, base.text
                must(8 <= len(text) <= (1 << 26) - record.length, "a base is neither too short nor too long")
            record.text = decode(record, text)
            must(len(record.text) == record.length, "a text is as long as its header says")
            record.chain += -(-record.length // 1024)
            prove(record, checks[record.kind])
            self.copies.setdefault((record.kind, record.key), record)
            self.holders.setdefault((record.kind, record.key), set()).add(revision)
        own = [record for record in segment.records if record.key == revision]
        must(git_parents(own[0]) == [parent for parent, _ in segment.parents], "the record names the parents")

    def _compare(self, pack: Pack, index: Index) -> None:
        """Compare an index, all but its lineages, with what the pack says."""
        rows, segments, place = pack.rows, pack.segments, len(self.packs) - 1
        must((index.size, index.hash) == (pack.size, pack.hash), "an index is of its pack")
        row_at = {record.header_at: row for row, (record, _) in enumerate(rows)}
        local = {segment.revision: ordinal for ordinal, segment in enumerate(segments)}
        bits = next(f for f in range(17) if f == 16 or 1 << (f + 4) >= len(rows) > 0 or len(rows) <= 16)
        buckets = [int.from_bytes(record.digest) >> (160 - bits) for record, _ in rows]
        external, outside, bases, parents, starts = [], [], {}, [], [0]
        for segment in segments:
            for record in segment.records:
                if record.base is not None:
                    base = self.copies[record.kind, record.base]
                    name = bytes([record.kind]) + record.base
                    if base.position[0] == place:
                        bases[record.header_at] = row_at[base.header_at]
                    else:
                        external += [name] * (name not in external)
                        bases[record.header_at] = 0x80000000 + external.index(name)
            for parent in (parent for parent, absent in segment.parents if not absent):
                outside += [parent] * (self.places[parent] < place and parent not in outside)
                parents.append(0x80000000 + outside.index(parent) if parent in outside else local[parent])
            starts.append(len(parents))
        expected = {
            "fanout": [bisect_left(buckets, bucket) for bucket in range((1 << bits) + 1)],
            "digests": [record.digest for record, _ in rows],
            "headers": [record.header_at for record, _ in rows],
            "frames": [record.frame_at for record, _ in rows],
            "frame_lengths": [len(record.frame) for record, _ in rows],
            "text_lengths": [record.length for record, _ in rows],
            "bases": [bases.get(record.header_at, 0xFFFFFFFF) for record, _ in rows],
            "segments": [ordinal for _, ordinal in rows],
            "chains": [record.chain for record, _ in rows],
            "lineages": index.columns["lineages"],
            "depths": [min(record.depth, 255) for record, _ in rows],
            "offsets": [segment.at for segment in segments] + [pack.size - 16],
            "by_id": sorted(range(len(segments)), key=lambda ordinal: segments[ordinal].revision),
            "starts": starts,
            "parents": parents,
            "id": [segment.revision for segment in segments],
            "external": external,
            "outside": outside,
        }
        for name, column in expected.items():
            must(index.columns[name] == column, f"the column {name} is what the pack says")
        for record, _ in rows:
            found = index.find(record.kind, record.key)
            must(found is not None and rows[found][0].key == record.key, "a key is found")


# Dialogs

REQUEST, BODY, END, REPLY, ERROR, PROGRESS, CANCEL, PING, PONG, GOAWAY = range(1, 11)
WITH_BODY = 0x40
CLIENT = {REQUEST, REQUEST | WITH_BODY, BODY, END, CANCEL, PING, PONG}
SERVER = {REPLY, REPLY | WITH_BODY, ERROR, PROGRESS, BODY, END, PING, PONG, GOAWAY}
LIMITS = {END: 12, CANCEL: 0, PING: 64, PONG: 64, GOAWAY: 1024}


@dataclass
class Side:
    """What one side said of one request."""

    messages: list[tuple[int, Any]] = field(default_factory=list)  # type and content, in order
    body: bytes | None = None
    ended: int | None = None  # segments, once END has come

    @property
    def kinds(self) -> list[int]:
        return [kind for kind, _ in self.messages]


def read_side(data: bytes, speaker: set[int]) -> dict[int, Side]:
    """Read all that one side of a connection sent."""
    must(data.startswith(b"hpss/1\n"), "a side begins with the opening line")
    cursor, sides, begun = Cursor(data, 7), dict[int, Side](), None
    while cursor.at < cursor.end:
        length, kind, request = cursor.unpack(">IBI")
        must(length <= 262144, "a payload fits into a frame")
        payload = cursor.take(length)
        if kind >= 0x80:
            continue
        must(kind in speaker and length <= LIMITS.get(kind, length), "a frame is one that this side may send")
        must((request == 0) == (kind in (PING, PONG, GOAWAY)), "a request has an id")
        side = sides.setdefault(request, Side())
        if kind & ~WITH_BODY in (REQUEST, REPLY, ERROR):
            must(begun is None or begun[:2] == (kind, request), "the parts of two messages do not mix")
            joined = (begun[2] if begun else b"") + payload
            begun = (kind, request, joined) if length == 262144 else None
            if begun is None:
                side.messages.append((kind, msgspec.msgpack.decode(joined)))
                side.body = b"" if kind & WITH_BODY else side.body
        elif kind == BODY:
            must(side.body is not None and side.ended is None, "a body comes between its message and END")
            side.body = (side.body or b"") + payload
        elif kind == END:
            must(length == 12, "END has 12 bytes")
            side.ended, size = struct.unpack(">IQ", payload)
            must(side.body is not None and size == len(side.body), "END counts the bytes")
        else:
            side.messages.append((kind, msgspec.msgpack.decode(payload) if kind == PROGRESS else payload))
    must(begun is None, "the last message is whole")
    return sides


@dataclass
class Exchange:
    """A request and what became of it; fields that were left out have their defaults."""

    path: str
    calls: list[list[Any]]
    flags: int
    answer: list[Any]  # of a Reply or a Failure
    refused: bool
    graph: list[tuple[bytes, list[tuple[bytes, bool]]]]
    up: list[Segment]
    down: list[Segment]


def read_dialog(client: bytes, server: bytes) -> list[Exchange]:
    """Read the bytes that went each way over one connection, all of whose requests are over."""
    asked, answered, found = read_side(client, CLIENT), read_side(server, SERVER), []
    must(list(asked) == sorted(asked) and asked.keys() >= answered.keys(), "ids ascend, and only they are answered")
    for request in sorted(asked.keys() - {0}):
        ours, theirs = asked[request], answered[request]
        (first, asking), *others = ours.messages
        path, _id, _age, calls, flags, *_ = [*asking, 0]
        must(first & ~WITH_BODY == REQUEST and bool(first & WITH_BODY) == bool(flags & 4), "a request comes first")
        must([kind for kind, _ in others] in ([], [CANCEL]), "only CANCEL follows")
        must(bool(others) or (ours.ended is None) == (ours.body is None), "a body ends")
        final = [kind for kind in theirs.kinds if kind != PROGRESS]
        must(theirs.kinds[-len(final) :] == final, "PROGRESS comes before the answer")
        must(final in ([REPLY], [REPLY | WITH_BODY], [ERROR], [REPLY | WITH_BODY, ERROR]), "there is one answer")
        must((theirs.ended is None) == (final != [REPLY | WITH_BODY]), "a body ends with END or ERROR")
        cursor, graph = Cursor(ours.body or b""), []
        if flags & 8:
            graph = read_graph(cursor)
        refused = final[-1] == ERROR
        up = read_segments(cursor, OBJECT) if ours.ended is not None else []
        down = read_segments(Cursor(theirs.body or b""), OBJECT) if theirs.ended is not None else []
        must((ours.ended or 0, theirs.ended or 0) == (len(up), len(down)), "END counts the segments")
        outcomes = theirs.messages[-1][1][int(refused)]
        must(len(outcomes) == len(calls) or refused, "each call has its outcome")
        found.append(Exchange(path, calls, flags, theirs.messages[-1][1], refused, graph, up, down))
    return found
