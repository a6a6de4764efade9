"""A second decoder, written from the texts alone: doc/spec/disk.md and doc/spec/wire.md.

It imports nothing of the project. Bytes that break a rule of the texts are `Damaged`.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import zstandard

Kinds = list[dict[str, Any]]  # name, check and base of each
Parents = list[tuple[bytes, bool]]  # id and whether it is absent

OBJECT: Kinds = [{"name": "object", "check": "git-sha1", "base": True}]  # the kinds of `git sha1`
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


# Segments and packs


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


def prove(record: Record, kind: dict[str, Any]) -> None:
    """Prove a record's text against its key, or its check where it has one."""
    if kind["check"] == "blake2b-128":
        named = (kind["name"].encode(), record.key, record.meta)
        must(all(len(part) < 128 for part in named), "here only lengths of one byte are proved")
        good = blake(b"".join(bytes([len(part)]) + part for part in named) + record.text) == record.check
    elif kind["check"] == "sha1-key":
        good = record.key == b"sha1:" + hashlib.sha1(record.text).hexdigest().encode()
    else:
        must(kind["check"] in ("git-sha1", "git-sha256") and len(record.meta) == 1, "the check is known")
        whole = b"%s %d\0%s" % (TYPES[record.meta[0]], len(record.text), record.text)
        good = hashlib.new(kind["check"].removeprefix("git-"), whole).digest() == record.key
    must(good and len(record.text) == record.length, f"the text of {record.key.hex()} is what its header says")


def git_parents(own: Record) -> list[bytes]:
    """The parents that the record of a revision names."""
    lines = own.text.partition(b"\n\n")[0].split(b"\n")
    if own.meta == b"\1":
        return [bytes.fromhex(line[7:].decode()) for line in lines if line.startswith(b"parent ")]
    if own.meta == b"\4" and lines[1] in (b"type commit", b"type tag"):
        return [bytes.fromhex(lines[0][7:].decode())]
    return []


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


# Indexes

COLUMNS = (
    "fanout F I, digests R 20s, headers R Q, frames R Q, frame_lengths R I, text_lengths R I, bases R I, segments R I, "
    "chains R I, lineages R I, depths R B, offsets S1 Q, id_offsets S1 I, by_id S I, starts S1 I, parents P I, "
    "external_offsets B1 I, outside_offsets O1 I"
)
FOREIGN = 0x80000000


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
            self.columns[name] = [table[a:b] for a, b in pairwise(offsets)]
            must(not any(cursor.take(-cursor.at % 8)), "zeros follow a table")
        must(cursor.at == cursor.end, "the columns and tables fill the index")

    def find(self, kind: int, key: bytes) -> int | None:
        """Find the first row of a key."""
        digests, wanted = self.columns["digests"], blake(bytes([kind]) + key, 20)
        low, high = self.columns["fanout"][int.from_bytes(wanted) >> (160 - self.bits) :][:2]
        row = bisect_left(digests, wanted, low, high)
        return row if row < high and digests[row] == wanted else None


def index_of(pack: Pack, place: int, copies: dict[bytes, Record], places: dict[bytes, int]) -> dict[str, list[Any]]:
    """Make the columns of a pack's index, all but the lineages, from its segments."""
    located = [(blake(r.name, 20), r.header_at, s, r) for s, x in enumerate(pack.segments) for r in x.records]
    rows = sorted(located, key=lambda row: row[:2])
    records = [record for *_, record in rows]
    row_at = {record.header_at: row for row, record in enumerate(records)}
    local = {segment.revision: ordinal for ordinal, segment in enumerate(pack.segments)}
    bits = next(f for f in range(17) if f == 16 or 1 << (f + 4) >= len(rows))
    buckets = [int.from_bytes(digest) >> (160 - bits) for digest, *_ in rows]
    external, outside, bases, parents, starts = list[bytes](), list[bytes](), dict[int, int](), list[int](), [0]
    for segment in pack.segments:
        for record in segment.records:
            if (name := record.base_name) is None:
                bases[record.header_at] = 0xFFFFFFFF
            elif (base := copies[name]).place == place:
                bases[record.header_at] = row_at[base.header_at]
            else:
                external += [name] * (name not in external)
                bases[record.header_at] = FOREIGN + external.index(name)
        for parent in segment.present:
            outside += [parent] * (places[parent] < place and parent not in outside)
            parents.append(FOREIGN + outside.index(parent) if places[parent] < place else local[parent])
        starts.append(len(parents))
    return {
        "fanout": [bisect_left(buckets, bucket) for bucket in range((1 << bits) + 1)],
        "digests": [digest for digest, *_ in rows],
        "headers": [record.header_at for record in records],
        "frames": [record.frame_at for record in records],
        "frame_lengths": [len(record.frame) for record in records],
        "text_lengths": [record.length for record in records],
        "bases": [bases[record.header_at] for record in records],
        "segments": [ordinal for *_, ordinal, _ in rows],
        "chains": [record.chain for record in records],
        "depths": [min(record.depth, 255) for record in records],
        "offsets": [segment.at for segment in pack.segments] + [pack.size - 16],
        "by_id": sorted(range(len(pack.segments)), key=lambda ordinal: pack.segments[ordinal].revision),
        "starts": starts,
        "parents": parents,
        "id": list(local),
        "external": external,
        "outside": outside,
    }


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
    copies: dict[bytes, Record] = field(default_factory=dict)  # by kind and key: the one at the lowest position
    holders: dict[bytes, set[bytes]] = field(default_factory=dict)  # the revisions that introduced it
    ancestors: dict[bytes, set[bytes]] = field(default_factory=dict)  # of each revision, itself among them
    places: dict[bytes, int] = field(default_factory=dict)  # the pack of each revision

    def __post_init__(self) -> None:
        must(self._file("format") == b"smartserver repository 1 swap=file\n", "the format is known")
        payload, check = msgspec.msgpack.decode(self._file("root"))
        must(blake(payload) == check, "a root has the hash of its payload")
        self.root = msgspec.msgpack.decode(payload)
        must(not self.root[3] and not self.root[16], "there are no features to know, and the repository is there")
        self.refs = {ref: msgspec.msgpack.decode(tips) for ref, tips in self._table("refs").items()}
        for first, last, _time, length, check, name in self.root[15]:
            cursor = self._named(f"log/{last}-{name.hex()}", length, check)
            *head, count = cursor.unpack("<8sHHI")
            entries = msgspec.msgpack.decode(cursor.take(cursor.end - cursor.at))
            must(head == [b"hpss-log", 1, 0] and len(entries) == count, "a log file begins with its magic")
            must((first, last) == (entries[0][0], entries[-1][0]), "a log file has the versions that the root says")
            self.log += entries
        self.log += self.root[12]
        for name, length, check, index_length, index_check, *counts in self.root[7]:
            pack = read_pack(self._named(f"packs/{name.hex()}.pack", length, check).data)
            index = Index(self._named(f"packs/{name.hex()}.idx", index_length, index_check).data)
            must(pack.kinds == self.root[6], "the kinds are the root's")
            must(counts == [len(pack.segments), sum(len(s.records) for s in pack.segments)], "the root counts right")
            must((index.size, index.hash) == (pack.size, pack.hash), "an index is of its pack")
            for segment in pack.segments:
                self._place(segment)
            for column, items in index_of(pack, len(self.packs), self.copies, self.places).items():
                must(index.columns[column] == items, f"the column {column} is what the pack says")
            self.packs.append(pack)
            self.indexes.append(index)

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
            for begin, end in pairwise(offsets):
                entry = Cursor(cursor.data, cursor.at + begin, cursor.at + end)
                must(entry.unpack("<I")[0] == zlib.crc32(entry.data[entry.at : entry.end]), "an entry has its CRC")
                key = entry.take(entry.unpack("<H")[0])
                found[key] = entry.take(entry.end - entry.at)
            must(cursor.at + offsets[-1] == cursor.end, "the entries fill a table file")
        changed = found | self.root[11].get(name, {})
        return {key: value for key, value in changed.items() if value is not None}

    def _place(self, segment: Segment) -> None:
        """Decode and prove what a segment holds, and add it to what is known."""
        must(all(parent in self.ancestors for parent in segment.present), "a parent lies at a lower ordinal")
        must(segment.revision not in self.ancestors, "a revision has one segment in a repository")
        above = {segment.revision}.union(*(self.ancestors[parent] for parent in segment.present))
        self.ancestors[segment.revision], self.places[segment.revision] = above, len(self.packs)
        for record in segment.records:
            text = b""
            if record.base_name is not None:
                must(bool(self.holders[record.base_name] & above), "an ancestor introduced a base")
                base = self.copies[record.base_name]
                record.depth, record.chain, text = base.depth + 1, base.chain, base.text
                must(8 <= len(text) <= (1 << 26) - record.length, "a base is neither too short nor too long")
            record.text, record.place = decode(record, text), len(self.packs)
            record.chain += -(-record.length // 1024)
            prove(record, self.root[6][record.kind])
            first = self.copies.setdefault(record.name, record)
            must(first.text == record.text, "copies have equal texts")
            self.holders.setdefault(record.name, set()).add(segment.revision)
        own = next(record for record in segment.records if record.key == segment.revision)
        must(git_parents(own) == [parent for parent, _ in segment.parents], "a revision's record names its parents")


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
    segments: int | None = None  # from END


def read_side(data: bytes, speaker: set[int]) -> dict[int, Side]:
    """Read all that one side of a connection sent, by request id."""
    must(data.startswith(b"hpss/1\n"), "a side begins with the opening line")
    cursor, sides, parts, going_on = Cursor(data, 7), dict[int, Side](), b"", None
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
            must(going_on in (None, (kind, request)), "parts of two messages do not mix")
            parts, going_on = parts + payload, (kind, request) if length == 262144 else None
            if going_on is None:
                side.messages.append((kind, msgspec.msgpack.decode(parts)))
                parts, side.body = b"", b"" if kind & WITH_BODY else side.body
        elif kind == BODY:
            must(side.body is not None and side.segments is None, "a body comes between its message and END")
            side.body = (side.body or b"") + payload
        elif kind == END:
            side.segments, size = Cursor(payload).unpack(">IQ")
            must(side.body is not None and size == len(side.body), "END counts the bytes")
        else:
            side.messages.append((kind, msgspec.msgpack.decode(payload) if kind == PROGRESS else payload))
    must(going_on is None, "the last message is whole")
    return sides


@dataclass
class Exchange:
    """A request and what became of it."""

    id: bytes
    path: str
    calls: list[list[Any]]
    fault: list[Any] | None  # of an ERROR
    outcomes: list[list[Any]]
    state: list[Any] | None
    graph: list[tuple[bytes, Parents]]
    up: list[Segment]
    down: list[Segment]


def read_dialog(client: bytes, server: bytes, kinds: Kinds = OBJECT) -> list[Exchange]:
    """Read the bytes that went each way over a connection, all of whose requests are over."""
    asked, answered, found = read_side(client, CLIENT), read_side(server, SERVER), []
    requests = [request for request in asked if request]
    must(requests == sorted(requests) and {0, *asked} >= answered.keys(), "ids ascend, and only they are answered")
    for ours, theirs in ((asked[request], answered[request]) for request in requests):
        (first, asking), *others = ours.messages
        flags = asking[4] if len(asking) > 4 else 0
        must(first & ~WITH_BODY == REQUEST and bool(first & WITH_BODY) == bool(flags & 4), "BODY is said twice")
        must([kind for kind, _ in others] in ([], [CANCEL]), "only CANCEL follows a request")
        must(bool(others) or (ours.segments is None) == (ours.body is None), "a body that is not cancelled ends")
        final = [kind for kind, _ in theirs.messages if kind != PROGRESS]
        must(final in ([REPLY], [REPLY | WITH_BODY], [ERROR], [REPLY | WITH_BODY, ERROR]), "there is one final answer")
        must((theirs.segments is None) == (final != [REPLY | WITH_BODY]), "a body ends with END or ERROR")
        cursor = Cursor(ours.body or b"")
        graph = read_graph(cursor) if flags & 8 and (ours.segments is not None) else []
        up = read_segments(cursor, kinds) if ours.segments is not None else []
        down = read_segments(Cursor(theirs.body or b""), kinds) if theirs.segments is not None else []
        must((ours.segments or 0, theirs.segments or 0) == (len(up), len(down)), "END counts the segments")
        answer = theirs.messages[-1][1]
        fault = answer.pop(0) if final[-1] == ERROR else None
        outcomes, state = (*answer, *([], None)[len(answer) :])[:2]
        must(len(outcomes) == len(asking[3]) or (fault is not None and not outcomes), "each call has its outcome")
        found.append(Exchange(asking[1], asking[0], asking[3], fault, outcomes, state, graph, up, down))
    return found
