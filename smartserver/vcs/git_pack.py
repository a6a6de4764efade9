"""Git packs and their indexes as bytes: entries made from pulled records, each checked against its key."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from smartserver.records.delta import decompress
from smartserver.records.model import Key
from smartserver.records.segment import STORED
from smartserver.records.varint import encode
from smartserver.vcs.base import VcsError, WrongContent
from smartserver.vcs.git_delta import delta, tree_entries
from smartserver.vcs.git_objects import COMMIT, TREE, TYPE_NAMES, GitObject, MissingObject

OFS_DELTA = 6
PACK_HEAD = struct.Struct(">4sII")
_INDEX_HEAD = b"\377tOc\0\0\0\2"
_FAR = 1 << 31
"""Offsets from here on lie in the index's table of wide ones."""

_MAX_DELTA_TEXT = 1 << 32
"""A copy instruction has 32 bits for its offset."""

_WRITE_AT = 1 << 18
_LARGE = 1 << 20
"""Bytes of a text from which on its entry is made in pieces of that size."""


class Row(NamedTuple):
    """A pulled record: what it is, and where its frame lies in the spool file."""

    type: int
    encoding: int
    length: int
    at: int
    frame_length: int
    key: Key
    base: Key
    """Empty: none."""


class Rows:
    """Rows as bytes of one width, to pass between processes; `width`: bytes of a key."""

    def __init__(self, width: int) -> None:
        self._struct = struct.Struct(f"<BBQQQ{width}s{width}s")
        self._none = bytes(width)
        self.size = self._struct.size

    def pack(self, row: Row) -> bytes:
        """One row as bytes."""
        return self._struct.pack(*row[:6], row[6] or self._none)

    def unpack(self, block: bytes) -> list[Row]:
        """The rows of a block."""
        none = self._none
        return [
            Row(kind, encoding, length, at, frame_length, key, b"" if base == none else base)
            for kind, encoding, length, at, frame_length, key, base in self._struct.iter_unpack(block)
        ]


def hash_of(width: int) -> Callable[..., hashlib._Hash]:
    """The hash whose digest has that many bytes."""
    return hashlib.sha256 if width == 32 else hashlib.sha1


def entry_head(kind: int, n: int) -> bytes:
    """The head of a pack entry: its type and the length of what follows, inflated."""
    low, n = kind << 4 | n & 15, n >> 4
    return bytes((low | 128,)) + encode(n) if n else bytes((low,))


def offset_back(n: int) -> bytes:
    """How far before its entry a delta's base lies."""
    out = bytearray((n & 127,))
    n >>= 7
    while n:
        n -= 1
        out.insert(0, 128 | n & 127)
        n >>= 7
    return bytes(out)


class Table:
    """What an index needs to know of each entry written: key, CRC-32 and offset."""

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

    def to_bytes(self) -> bytes:
        """All of it, for another process on this machine."""
        return b"".join((bytes(self._keys), self._checks.tobytes(), self._offsets.tobytes()))

    def join(self, block: bytes, offset: int) -> None:
        """Add the entries of another table whose entries were written from `offset` on."""
        count = len(block) // (self._width + 12)
        checks, offsets = array("I"), array("Q")
        at = count * self._width
        checks.frombytes(block[at : at + 4 * count])
        offsets.frombytes(block[at + 4 * count :])
        self._keys += block[:at]
        self._checks.extend(checks)
        self._offsets.extend([offset + n for n in offsets])

    def rows(self) -> list[tuple[Key, int, int]]:
        """(key, check, offset) of each entry, sorted by key."""
        width = self._width
        keys = bytes(self._keys)
        return sorted(
            zip([keys[at : at + width] for at in range(0, len(keys), width)], self._checks, self._offsets, strict=True)
        )


def index(table: Table, pack_hash: bytes) -> bytes:
    """The index file (version 2) of a pack that ends with `pack_hash`."""
    rows = table.rows()
    counts = [0] * 256
    for key, _, _ in rows:
        counts[key[0]] += 1
    fanout, total = [], 0
    for count in counts:
        total += count
        fanout.append(total)
    far = [offset for _, _, offset in rows if offset >= _FAR]
    nth = iter(range(len(far)))
    near = [offset if offset < _FAR else _FAR | next(nth) for _, _, offset in rows]
    body = b"".join(
        (
            _INDEX_HEAD,
            struct.pack(">256I", *fanout),
            b"".join([key for key, _, _ in rows]),
            struct.pack(f">{len(rows)}I", *[check for _, check, _ in rows]),
            struct.pack(f">{len(rows)}I", *near),
            struct.pack(f">{len(far)}Q", *far),
            pack_hash,
        )
    )
    return body + hash_of(len(pack_hash))(body).digest()


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


class Texts:
    """Texts of records whose frames lie in a spool file; least recently used ones are dropped and decoded again."""

    def __init__(self, spool: int, outside: Callable[[Key], GitObject], limit: int) -> None:
        self._spool = spool
        self._outside = outside
        self._limit = limit
        self._held = 0
        self._texts: OrderedDict[Key, bytes] = OrderedDict()
        self._rows: dict[Key, Row] = {}

    def add(self, row: Row) -> tuple[bytes, bytes]:
        """The text of a record and that of its base.

        Raises:
            WrongContent: it cannot be decoded.
            BaseNotHere: its base is neither among those added nor in the repository.
        """
        self._rows[row.key] = row
        base = self._get(row.base) if row.base else b""
        text = self._decode(row, base)
        self._keep(row.key, text)
        return text, base

    def _get(self, key: Key) -> bytes:
        wanted, chain = key, []
        text = self._texts.get(key)
        while text is None:
            row = self._rows.get(key)
            if row is None:
                try:
                    text = self._outside(key).text
                except MissingObject as missing:
                    raise BaseNotHere(key) from missing
            else:
                chain.append(row)
                key = row.base
                text = self._texts.get(key) if key else b""
        if not chain and key in self._texts:
            self._texts.move_to_end(key)
            return text
        for row in reversed(chain):
            text = self._decode(row, text)
        self._keep(wanted, text)  # What lies between is not kept: it would drive out what is wanted again.
        return text

    def _decode(self, row: Row, base: bytes) -> bytes:
        frame = os.pread(self._spool, row.frame_length, row.at)
        try:
            return decompress(row.encoding, frame, row.length, base)
        except ValueError as wrong:
            raise WrongContent(row.key, str(wrong)) from wrong

    def _keep(self, key: Key, text: bytes) -> None:
        if len(text) > self._limit:
            return  # It would drive out all others, and one over 64 MiB is no base of anything.
        old = self._texts.pop(key, None)
        self._texts[key] = text
        self._held += len(text) - (len(old) if old is not None else 0)
        while self._held > self._limit:
            self._held -= len(self._texts.popitem(last=False)[1])


class EntryWriter:
    """Turns records into pack entries, one after the other, and remembers what an index needs.

    A record may be a delta of one written here before, never of one outside: the pack stands alone. Bases of another
    type are for decoding only, since in a pack a delta has the type of its base.
    """

    def __init__(
        self, spool: int, out: int, width: int, outside: Callable[[Key], GitObject], *, cache: int, level: int
    ) -> None:
        self.table = Table(width)
        self.size = 0
        self._texts = Texts(spool, outside, cache)
        self._out = out
        self._level = level
        self._hash = hash_of(width)
        self._split = tree_entries(width)
        self._places: dict[Key, tuple[int, int]] = {}
        self._pending: list[bytes] = []
        self._written = 0

    def add(self, row: Row) -> None:
        """Check a record and write its entry.

        Raises:
            WrongContent: it is not what its key says, or cannot be decoded.
            BaseNotHere: it rests on an object that should be in the repository.
        """
        kind = row.type
        text, base = self._texts.add(row)
        hashed = self._hash(b"%s %d\0" % (TYPE_NAMES[kind], len(text)))
        hashed.update(text)
        if hashed.digest() != row.key:
            raise WrongContent(row.key, f"its content has the id {hashed.hexdigest()}")
        entry = None
        place = self._places.get(row.base) if base else None
        # Deltas of commits save a tenth of their bytes and double the deltas to make and to resolve: whole.
        if place is not None and place[0] == kind != COMMIT and len(base) < _MAX_DELTA_TEXT:
            changes = delta(base, text, self._split if kind == TREE else None)
            if len(changes) * 10 < len(text) * 7:
                head = entry_head(OFS_DELTA, len(changes)) + offset_back(self.size - place[1])
                entry = head + zlib.compress(changes, self._level)
        if entry is None and len(text) > _LARGE:
            self._add_large(row, text)
            return
        if entry is None:
            entry = entry_head(kind, len(text)) + zlib.compress(text, self._level)
        self._places[row.key] = (kind, self.size)
        self.table.add(row.key, zlib.crc32(entry), self.size)
        self.size += len(entry)
        self._pending.append(entry)
        if self.size - self._written > _WRITE_AT:
            self.flush()

    def _add_large(self, row: Row, text: bytes) -> None:
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
        self._places[row.key] = (row.type, start)
        self.table.add(row.key, check, start)

    def add_all(self, rows: Iterable[Row]) -> None:
        """`add` each."""
        for row in rows:
            self.add(row)

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
