"""Git packs and their indexes as bytes: entries made from pulled records, each checked against its key."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from smartserver.records.cache import Cache
from smartserver.records.delta import decompress
from smartserver.records.keys import ABSENT, KeyTable
from smartserver.records.model import Key
from smartserver.records.segment import STORED
from smartserver.records.varint import encode
from smartserver.vcs.base import VcsError, WrongContent
from smartserver.vcs.git.delta import delta, tree_entries
from smartserver.vcs.git.objects import COMMIT, TREE, TYPE_NAMES

OFS_DELTA = 6
PACK_HEAD = struct.Struct(">4sII")
_U32 = struct.Struct(">I")
_INDEX_HEAD = b"\377tOc\0\0\0\2"
_FAR = 1 << 31
"""Offsets from here on lie in the index's table of wide ones."""

_MAX_DELTA_TEXT = 1 << 32
"""A copy instruction has 32 bits for its offset."""

_WRITE_AT = 1 << 18
_LARGE = 1 << 20
"""Bytes of a text from which on its entry is made in pieces of that size."""


class SpooledRecord(NamedTuple):
    """A pulled record: what it is, and where its frame lies in the spool file."""

    type: int
    encoding: int
    length: int
    at: int
    frame_length: int
    key: Key
    base: Key
    """Empty: none."""


def hash_of(width: int) -> Callable[..., hashlib._Hash]:
    """The hash whose digest has that many bytes."""
    return hashlib.sha256 if width == 32 else hashlib.sha1


def check_id(kind: int, key: Key, text: bytes) -> None:
    """Check that an object has the id that is its key."""
    hashed = hash_of(len(key))(b"%s %d\0" % (TYPE_NAMES[kind], len(text)))
    hashed.update(text)
    if hashed.digest() != key:
        raise WrongContent(key, f"its content has the id {hashed.hexdigest()}")


def entry_head(kind: int, n: int) -> bytes:
    """The head of a pack entry: its type and the length of what follows, inflated."""
    low, n = kind << 4 | n & 15, n >> 4
    return bytes((low | 128,)) + encode(n) if n else bytes((low,))


def offset_back(n: int) -> bytes:
    """The distance from an entry back to the base of its delta."""
    out = bytearray((n & 127,))
    n >>= 7
    while n:
        n -= 1
        out.insert(0, 128 | n & 127)
        n >>= 7
    return bytes(out)


class IndexTable:
    """The key, CRC-32 and offset of each entry written, as an index needs them."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._keys = bytearray()
        self._checks = array("I")
        self._offsets = array("Q")

    def __len__(self) -> int:
        return len(self._checks)

    def add(self, key: Key, check: int, offset: int) -> None:
        """One entry."""
        self._keys += key
        self._checks.append(check)
        self._offsets.append(offset)

    def index(self, pack_hash: bytes, shift: int = 0) -> bytes:
        """The index file (version 2) of a pack that ends with `pack_hash`. `shift`: added to all offsets."""
        width, checks, offsets = self._width, self._checks, self._offsets
        keys = memoryview(self._keys)
        buckets = [array("I") for _ in range(256)]
        for number, first in enumerate(self._keys[::width]):
            buckets[first].append(number)
        order = array("I")
        out = bytearray(_INDEX_HEAD)
        for bucket in buckets:
            order.extend(sorted(bucket, key=lambda n: bytes(keys[n * width : (n + 1) * width])))
            out += _U32.pack(len(order))
        for number in order:
            out += keys[number * width : (number + 1) * width]
        for number in order:
            out += _U32.pack(checks[number])
        far = bytearray()
        for number in order:
            offset = offsets[number] + shift
            if offset >= _FAR:
                out += _U32.pack(_FAR | len(far) // 8)
                far += offset.to_bytes(8, "big")
            else:
                out += _U32.pack(offset)
        out += far
        out += pack_hash
        return bytes(out) + hash_of(len(pack_hash))(out).digest()


class BaseNotHere(VcsError):
    """A delta base was not sent, since it should be in the repository, and it is not: most likely that is damaged."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return (
            f"object {self.key.hex()}, which what came rests on, is missing here: run `git fsck` "
            "(where that finds nothing wrong, the server left it out)"
        )


_RECORD = struct.Struct("<BBQQQi")
"""The fields of a record: type, encoding, length, place and length of its frame, number of its base."""

_OUTSIDE = bytes(_RECORD.size)
"""The same of a base that was named and not added."""


class Texts:
    """Texts of records whose frames lie in a spool file; least recently used ones are dropped and decoded again.

    A record has a number; what is known of it takes 80 bytes with its key.
    """

    def __init__(self, spool: int, outside: Callable[[Key], bytes], limit: int) -> None:
        self._spool = spool
        self._outside = outside
        self._keys = KeyTable()
        self._records = bytearray()
        self._texts = Cache[int, bytes](limit, len)
        self._is_outside: set[int] = set()
        """Records that were named as a base before they came: their texts are read from the repository. What they rest
        on may rest on them."""

    def add(self, row: SpooledRecord) -> tuple[int, bytes, int, bytes]:
        """The number of a record and its text; the number of its base, `ABSENT` where it has none, and its text."""
        base = self._number(row.base) if row.base else ABSENT
        known = len(self._keys)
        record = self._number(row.key)
        if record < known:
            self._is_outside.add(record)
        _RECORD.pack_into(self._records, record * _RECORD.size, *row[:5], base)
        base_text = self._get(base) if row.base else b""
        text = self._decode(record, base_text)
        self._texts.put(record, text)
        return record, text, base, base_text

    def _number(self, key: Key) -> int:
        number = self._keys.number(key)
        if number * _RECORD.size == len(self._records):
            self._records += _OUTSIDE
        return number

    def _decode(self, record: int, base: bytes) -> bytes:
        _, encoding, length, at, frame_length, _ = _RECORD.unpack_from(self._records, record * _RECORD.size)
        try:
            return decompress(encoding, os.pread(self._spool, frame_length, at), length, base)
        except ValueError as error:
            raise WrongContent(self._keys.key(record), str(error)) from error

    def _get(self, record: int) -> bytes:
        wanted, chain = record, list[int]()
        text = self._texts.get(record)
        while text is None:
            kind, *_, base = _RECORD.unpack_from(self._records, record * _RECORD.size)
            if not kind or record in self._is_outside:
                text = self._read_outside(record)
            else:
                chain.append(record)
                record = base
                text = self._texts.get(record) if record != ABSENT else b""
        if not chain:
            return text
        for link in reversed(chain):
            text = self._decode(link, text)
        self._texts.put(wanted, text)  # What lies between is not kept: it would drive out what is wanted again.
        return text

    def _read_outside(self, record: int) -> bytes:
        text = self._outside(self._keys.key(record))
        self._texts.put(record, text)
        return text


class EntryWriter:
    """Turns records into pack entries, one after the other, and remembers what an index needs.

    A record may be a delta of one written here before, never of one outside: the pack stands alone. Bases of another
    type are for decoding only, since in a pack a delta has the type of its base.
    """

    def __init__(
        self, spool: int, out: int, width: int, outside: Callable[[Key], bytes], *, cache: int, level: int
    ) -> None:
        self.table = IndexTable(width)
        self.size = 0
        self._texts = Texts(spool, outside, cache)
        self._out = out
        self._level = level
        self._split = tree_entries(width)
        self._types = bytearray()
        self._places = array("Q")
        """The type of each record, 0 where it has no entry, and the offset of its entry."""
        self._pending: list[bytes] = []
        self._written = 0

    def add(self, row: SpooledRecord) -> None:
        """Check a record and write its entry."""
        kind = row.type
        record, text, base_record, base = self._texts.add(row)
        check_id(kind, row.key, text)
        entry = None
        kind_of_base, place = self._entry(base_record) if base else (0, 0)
        # Deltas of commits save a tenth of their bytes and double the deltas to make and to resolve: whole.
        if kind_of_base == kind != COMMIT and len(base) < _MAX_DELTA_TEXT:
            changes = delta(base, text, self._split if kind == TREE else None)
            if len(changes) * 10 < len(text) * 7:
                head = entry_head(OFS_DELTA, len(changes)) + offset_back(self.size - place)
                entry = head + zlib.compress(changes, self._level)
        if entry is None and len(text) > _LARGE:
            self._add_large(record, row, text)
            return
        if entry is None:
            entry = entry_head(kind, len(text)) + zlib.compress(text, self._level)
        self._note(record, kind, self.size)
        self.table.add(row.key, zlib.crc32(entry), self.size)
        self.size += len(entry)
        self._pending.append(entry)
        if self.size - self._written > _WRITE_AT:
            self.flush()

    def _entry(self, record: int) -> tuple[int, int]:
        """Type and offset of a record's entry; type 0: it has none."""
        return (self._types[record], self._places[record]) if record < len(self._types) else (0, 0)

    def _note(self, record: int, kind: int, offset: int) -> None:
        while len(self._types) <= record:
            self._types.append(0)
            self._places.append(0)
        self._types[record], self._places[record] = kind, offset

    def _add_large(self, record: int, row: SpooledRecord, text: bytes) -> None:
        """An entry whose bytes are written as they are made: the text is all of it that is ever in memory."""
        self.flush()
        start, check = self.size, 0
        # What zstd left as it is, zlib does not shrink either: it is not tried for seconds.
        packer = zlib.compressobj(0 if row.encoding == STORED else self._level)
        view = memoryview(text)

        def pieces() -> Iterator[bytes]:
            yield entry_head(row.type, len(text))
            for at in range(0, len(text), _LARGE):
                yield packer.compress(view[at : at + _LARGE])
            yield packer.flush()

        for piece in pieces():
            write_all(self._out, piece)
            check = zlib.crc32(piece, check)
            self.size += len(piece)
        self._written = self.size
        self._note(record, row.type, start)
        self.table.add(row.key, check, start)

    def flush(self) -> None:
        """Write what is pending."""
        write_all(self._out, b"".join(self._pending))
        self._pending = []
        self._written = self.size


def write_all(file: int, block: bytes | memoryview) -> None:
    """Write a whole block to a file descriptor."""
    view = memoryview(block)
    while view:
        view = view[os.write(file, view) :]
