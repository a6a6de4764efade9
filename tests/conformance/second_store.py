"""The second decoder's reading of a repository, from doc/spec/disk.md alone: root, tables, log, packs and indexes.

Every record is proved, and every index compared with its pack.
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
import second_decoder
from second_decoder import Cursor, Kinds, Parents, blake, decode, must
from second_rules import integer, obey_segment, parents_of, references_of


@dataclass
class Record(second_decoder.Record):
    """A record with what a repository adds: its text and the place of its pack."""

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


@dataclass
class Pack:
    kinds: Kinds
    segments: list[Segment]
    size: int
    hash: bytes

    @classmethod
    def of(cls, data: bytes) -> Pack:
        kinds, read = second_decoder.read_pack(data)
        for segment in read:
            obey_segment(segment, kinds)
        segments = [Segment(**vars(s) | {"records": [Record(**vars(r)) for r in s.records]}) for s in read]
        return cls(kinds, segments, len(data), data[-16:])


TYPES = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}


def prove(record: Record, kind: dict[str, Any]) -> None:
    """Prove a record's text against its key, or its check where it has one."""
    if kind["check"] == "blake2b-128":
        named = (kind["name"].encode(), record.key, record.meta)
        good = blake(b"".join(integer(len(part)) + part for part in named) + record.text) == record.check
    elif kind["check"] == "sha1-key":
        good = record.key == b"sha1:" + hashlib.sha1(record.text).hexdigest().encode()
    else:
        must(kind["check"] in ("git-sha1", "git-sha256") and len(record.meta) == 1, "the check is known")
        whole = b"%s %d\0%s" % (TYPES[record.meta[0]], len(record.text), record.text)
        good = hashlib.new(kind["check"].removeprefix("git-"), whole).digest() == record.key
    must(good and len(record.text) == record.length, f"the text of {record.key.hex()} is what its header says")


def hashed(data: bytes) -> Cursor:
    """All of a file but the hash at its end."""
    must(blake(data[:-16]) == data[-16:], "a file ends with the hash of all that precedes")
    return Cursor(data, 0, len(data) - 16)


# Indexes

COLUMNS = (
    "fanout F I, digests R 20s, rows R QQIIIIIIB, offsets S1 Q, id_offsets S1 I, by_id S I, starts S1 I, parents P I, "
    "external_offsets B1 I, outside_offsets O1 I"
)
ROW = ("headers", "frames", "frame_lengths", "text_lengths", "bases", "segments", "chains", "lineages", "depths")
FOREIGN = 0x80000000


class Index:
    """An index: its columns and tables by name."""

    def __init__(self, data: bytes) -> None:
        blocks = -(-(len(data) - 16) // 16400)
        end = len(data) - 16 * blocks - 16
        must(blake(data[end:-16]) == data[-16:], "an index ends with the hash of its blocks' hashes")
        found = [blake(data[at : min(at + 16384, end)]) for at in range(0, end, 16384)]
        must(b"".join(found) == data[end:-16], "each block has its hash")
        cursor = Cursor(data, 0, end)
        magic, version, flags, self.bits, zero, *counts, self.size, self.hash = cursor.unpack("<8s4B5IQ16s")
        must((magic, version, flags, zero) == (b"hpss-idx", 1, 0, 0), "an index begins with its magic")
        many = dict(zip("RSPBO", counts, strict=True)) | {"F": (1 << self.bits) + 1}
        self.columns: dict[str, list[Any]] = {}
        for name, count, form in (column.split() for column in COLUMNS.split(", ")):
            items = cursor.take((many[count[0]] + len(count) - 1) * struct.calcsize("<" + form))
            unpacked = list(struct.iter_unpack("<" + form, items))
            for part, cells in zip(ROW if name == "rows" else [name], range(9), strict=False):
                self.columns[part] = [item[cells] for item in unpacked]
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


# The folder


def read_intent(data: bytes) -> list[Any]:
    cursor = Cursor(data, 0, len(data) - 20)
    must(cursor.unpack("<8sHH") == (b"hpss-int", 1, 0), "an intent begins with its magic")
    must(struct.unpack("<I", data[-20:-16]) == (len(data),), "an intent says its length")
    must(blake(data[:-16]) == data[-16:], "an intent has the hash it ends with")
    intent: list[Any] = msgspec.msgpack.decode(cursor.take(cursor.end - cursor.at))
    return intent


@dataclass
class Repository:
    """A repository on disk, every record of it decoded and proved and every index compared with its pack."""

    path: Path
    root: list[Any] = field(default_factory=list)
    refs: dict[bytes, list[list[Any]]] = field(default_factory=dict)
    log: list[list[Any]] = field(default_factory=list)
    intents: list[list[Any]] = field(default_factory=list)
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
            cursor = hashed(self._named(f"log/{last}-{name.hex()}", length, check))
            *head, count = cursor.unpack("<8sHHI")
            entries = msgspec.msgpack.decode(cursor.take(cursor.end - cursor.at))
            must(head == [b"hpss-log", 1, 0] and len(entries) == count, "a log file begins with its magic")
            must((first, last) == (entries[0][0], entries[-1][0]), "a log file has the versions that the root says")
            self.log += entries
        self.log += self.root[12]
        for name, length, check, index_length, index_check, *counts in self.root[7]:
            pack = Pack.of(self._named(f"packs/{name.hex()}.pack", length, check, intent=True))
            index = Index(self._named(f"packs/{name.hex()}.idx", index_length, index_check))
            must(pack.kinds == self.root[6], "the kinds are the root's")
            must(counts == [len(pack.segments), sum(len(s.records) for s in pack.segments)], "the root counts right")
            must((index.size, index.hash) == (pack.size, pack.hash), "an index is of its pack")
            for segment in pack.segments:
                self._place(segment)
            for column, items in index_of(pack, len(self.packs), self.copies, self.places).items():
                must(index.columns[column] == items, f"the column {column} is what the pack says")
            self.packs.append(pack)
            self.indexes.append(index)

        for each in (self.path / "log").glob("*.intent"):
            self.intents.append(read_intent(each.read_bytes()))

    def __iter__(self) -> Iterator[Record]:
        return (record for pack in self.packs for segment in pack.segments for record in segment.records)

    def _file(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def _named(self, name: str, length: int, check: bytes, *, intent: bool = False) -> bytes:
        data = self._file(name)
        if intent:
            data, noted = data[:length], data[length:]
            self.intents.append(read_intent(noted))
        must((len(data), data[-16:]) == (length, check), "a file is the one that the root names")
        return data

    def _table(self, name: str) -> dict[bytes, bytes]:
        _kind, found, file = self.root[10][name]
        if file is not None:
            cursor = hashed(self._named(f"tables/{file[0].hex()}", *file[1:3]))
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
        vcs, own = self.root[5], next(r for r in segment.records if (r.kind, r.key) == (0, segment.revision))
        must(parents_of(vcs, own) == [parent for parent, _ in segment.parents], "a revision's record names its parents")
        must(vcs == "bzr 2a" or len(segment.present) == len(segment.parents), "only Breezy has ghosts")
        for record in segment.records:
            must(vcs != "bzr 2a" or record.kind > 2 or record.key == segment.revision, "a revision has its own records")
            kind, keys = references_of(vcs, record)
            for name in {bytes([kind]) + key for key in keys}:
                must(bool(self.holders.get(name, set()) & above), "what a record refers to comes with it or before it")
