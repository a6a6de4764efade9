"""Sorted tables of names: inside the root while small, else an immutable file with changes over it in the root.

A table maps bytes to bytes; what the bytes mean is the root's business. Nothing damaged is returned as a value or as an
absence: each entry that a lookup touches carries its own check, a walk checks the whole file first.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from hashlib import blake2b
from itertools import pairwise
from typing import Annotated, Generic, TypeVar

import msgspec

from smartserver.errors import CorruptFile, InvalidName, LimitExceeded
from smartserver.records.limits import MAX_NAME

MAGIC = b"hpss-tbl"
VERSION = 1
HEADER = struct.Struct("<8sHHI")
"""Magic, version, flags (0), count of entries."""
OFFSET = struct.Struct("<I")
SPAN = struct.Struct("<2I")
ENTRY = struct.Struct("<IH")
"""CRC-32 of the rest of the entry, length of the key; the key and the value follow."""
TRAILER = 16
"""Bytes of the BLAKE2b that ends the file."""

INLINE = 16 * 1024
"""A table of at least this many bytes lies in a file."""
OVERHEAD = 6
"""Bytes msgpack adds to one small entry of a table, at most: a head of 3 for the key and of 3 for the value."""
LEAST_ENTRY = 120
"""Bytes an entry counts as, at least, where what a reply may carry is counted. The shortest ref takes a client 500."""

V = TypeVar("V")

Bytes16 = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


def check_name(name: bytes) -> None:
    """Accept the name of a ref or of an entry: 1 to 1,024 bytes, no NUL.

    Raises:
        InvalidName: it is not one.
    """
    if not 1 <= len(name) <= MAX_NAME:
        raise InvalidName(name[:MAX_NAME], f"{len(name)} bytes, expected 1 to {MAX_NAME}")
    if b"\0" in name:
        raise InvalidName(name, "a NUL byte in it")


def check_key(key: bytes) -> None:
    """Accept a key of a map: a name, or that of the ref it belongs to, NUL, and a name or nothing.

    Raises:
        InvalidName: it is neither.
    """
    of, belongs, name = key.partition(b"\0")
    check_name(of)
    if belongs and name:
        check_name(name)


class TableFile(msgspec.Struct, frozen=True, array_like=True):
    """What the root says of a table's file; its path is `tables/` and the name in hex."""

    name: Bytes16
    length: Natural
    hash: Bytes16
    count: Natural

    @property
    def path(self) -> str:
        """Where it lies in the repository."""
        return f"tables/{self.name.hex()}"


class Table(msgspec.Struct, frozen=True, array_like=True):
    """A table as the root holds it: its entries in key order, or (`file`) where they are.

    `kind` is `ids` (its values keep revisions alive) or `opaque`.
    """

    kind: str
    inline: dict[bytes, bytes] = {}
    file: TableFile | None = None


def encode_table(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a table file.

    Raises:
        ValueError: the keys are not in ascending order.
        LimitExceeded: the entries take more than 4 GiB.
    """
    entries: list[bytes] = []
    offsets = [0]
    at, last = 0, b""
    for key, value in items:
        if key <= last:
            raise ValueError(f"table key {key!r} after {last!r}")
        body = len(key).to_bytes(2, "little") + key + value
        entries.append(zlib.crc32(body).to_bytes(4, "little") + body)
        at, last = at + 4 + len(body), key
        offsets.append(at)
    if at > 0xFFFFFFFF:
        raise LimitExceeded("bytes of a table", at, 0xFFFFFFFF)
    head = HEADER.pack(MAGIC, VERSION, 0, len(entries)) + struct.pack(f"<{len(offsets)}I", *offsets)
    content = head + b"".join(entries)
    return content + blake2b(content, digest_size=TRAILER).digest()


class OpenTable:
    """A table file for lookups: nothing is decoded but the entries a lookup touches."""

    def __init__(self, content: memoryview, file: TableFile) -> None:
        """Take the file's content.

        Raises:
            CorruptFile: it is not the file the root names.
        """
        self.file = file
        self._content = content
        self._verified = False
        self.count: int
        """How many entries it has."""
        if len(content) != file.length:
            raise CorruptFile(file.path, 0, f"{len(content)} bytes, expected {file.length}")
        if len(content) < HEADER.size + OFFSET.size + TRAILER:
            raise CorruptFile(file.path, 0, f"{len(content)} bytes, too short for a table")
        magic, version, flags, self.count = HEADER.unpack_from(content)
        if (magic, version, flags) != (MAGIC, VERSION, 0):
            raise CorruptFile(file.path, 0, f"begins with {bytes(content[:12])!r}: no table this release reads")
        self._entries_at = HEADER.size + OFFSET.size * (self.count + 1)
        self._end = len(content) - TRAILER
        if self.count != file.count or self._entries_at > self._end:
            raise CorruptFile(file.path, 12, f"{self.count} entries, expected {file.count}")
        if content[self._end :] != file.hash:
            raise CorruptFile(file.path, self._end, "its check is not the one the root has")

    def get(self, key: bytes) -> bytes | None:
        """The value of a key.

        Raises:
            CorruptFile: an entry on the way is damaged.
        """
        place = self._place(key)
        if place == self.count:
            return None
        found, value = self._entry(place)
        return value if found == key else None

    def starting(self, first: bytes) -> Iterator[bytes]:
        """The keys that begin so, in their order.

        Raises:
            CorruptFile: an entry on the way is damaged.
        """
        for index in range(self._place(first), self.count):
            key, _ = self._entry(index)
            if not key.startswith(first):
                return
            yield key

    def _place(self, key: bytes) -> int:
        """The index of the first entry whose key is not less."""
        return bisect.bisect_left(range(self.count), key, key=lambda index: self._entry(index)[0])

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries in key order.

        Raises:
            CorruptFile: the file is damaged.
        """
        self.verify()
        content, base, head = self._content, self._entries_at, ENTRY.size
        column = (offset for (offset,) in OFFSET.iter_unpack(content[HEADER.size : base]))
        for start, end in pairwise(column):
            entry = bytes(content[base + start : base + end])
            split = head + (entry[4] | entry[5] << 8)
            yield entry[head:split], entry[split:]

    def verify(self) -> None:
        """Check the whole content, once.

        Raises:
            CorruptFile: the file is damaged.
        """
        if self._verified:
            return
        if blake2b(self._content[: self._end], digest_size=TRAILER).digest() != self.file.hash:
            raise CorruptFile(self.file.path, 0, "the content does not match its check")
        self._verified = True

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        at = HEADER.size + OFFSET.size * index
        start, end = SPAN.unpack_from(self._content, at)
        start, end = start + self._entries_at, end + self._entries_at
        if not (start + ENTRY.size <= end <= self._end):
            raise CorruptFile(self.file.path, at, f"entry {index} from byte {start} to {end}")
        body = bytes(self._content[start + 4 : end])
        if zlib.crc32(body) != OFFSET.unpack_from(self._content, start)[0]:
            raise CorruptFile(self.file.path, start, f"entry {index} does not match its check")
        split = 2 + (body[0] | body[1] << 8)
        return body[2:split], body[split:]


Opener = Callable[[TableFile], OpenTable]
"""Opens a table's file; called at the first lookup."""


class Lookup:
    """One table with the changes over it (a table inside the root has none), read when asked."""

    def __init__(self, table: Table, changes: Mapping[bytes, bytes | None], opener: Opener) -> None:
        self.stored = table
        self.changes = changes
        self._opener = opener

    def base(self) -> OpenTable | None:
        """The file below the changes, opened."""
        return None if self.stored.file is None else self._opener(self.stored.file)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        if key in self.changes:
            return self.changes[key]
        below = self.base()
        return self.stored.inline.get(key) if below is None else below.get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries in key order."""
        below = self.base()
        return iter(sorted(self.stored.inline.items())) if below is None else merged(below.items(), self.changes)

    def starting(self, first: bytes) -> list[bytes]:
        """The keys that begin so; of a file no more is read than where they lie."""
        below = self.base()
        stored = self.stored.inline if below is None else below.starting(first)
        keys = {key for key in (*stored, *self.changes) if key.startswith(first)}
        return sorted(key for key in keys if self.get(key) is not None)

    def count(self) -> int:
        """How many entries there are."""
        below = self.base()
        if below is None:
            return len(self.stored.inline)
        return below.count + sum((new is not None) - (below.get(key) is not None) for key, new in self.changes.items())


def merged(
    below: Iterator[tuple[bytes, bytes]], changes: Mapping[bytes, bytes | None]
) -> Iterator[tuple[bytes, bytes]]:
    """Entries in key order with `changes` over them."""
    over = sorted([(key, new) for key, new in changes.items() if new is not None], reverse=True)
    for key, value in below:
        while over and over[-1][0] < key:
            yield over.pop()
        if key not in changes:  # Else its new value is in `over`.
            yield key, value
    yield from reversed(over)


class _Items(ItemsView[bytes, V]):
    """The entries in one walk, where the inherited view would look each key up."""

    _mapping: TableMapping[V]

    def __iter__(self) -> Iterator[tuple[bytes, V]]:
        return self._mapping.walk()


class _Values(ValuesView[V]):
    """The values in one walk, as well."""

    _mapping: TableMapping[V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.walk())


class TableMapping(Mapping[bytes, V], Generic[V]):
    """A table as a mapping, its values decoded when asked for; iterates in key order.

    Reading raises CorruptFile for a damaged file and NoSuchFile for one that a later root replaced long ago: read the
    root again.
    """

    def __init__(self, lookup: Lookup, decode: Callable[[bytes], V]) -> None:
        self._lookup = lookup
        self._decode = decode

    def __getitem__(self, key: bytes) -> V:
        value = self._lookup.get(key)
        if value is None:
            raise KeyError(key)
        return self._decode(value)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._lookup.get(key) is not None

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self._lookup.items())

    def __len__(self) -> int:
        return self._lookup.count()

    def walk(self) -> Iterator[tuple[bytes, V]]:
        """The entries in key order."""
        decode = self._decode
        return ((key, decode(value)) for key, value in self._lookup.items())

    def items(self) -> ItemsView[bytes, V]:
        """The entries in key order, in one walk."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """The values in key order, in one walk."""
        return _Values(self)


class DraftTable(Lookup):
    """A table on its way into the next root: takes changes, and moves to a file when it grows."""

    changes: dict[bytes, bytes | None]

    def __init__(self, lookup: Lookup) -> None:
        table = lookup.stored
        super().__init__(Table(table.kind, dict(table.inline), table.file), dict(lookup.changes), lookup._opener)
        self._content: bytes | None = None

    @property
    def file(self) -> TableFile | None:
        """The file below the changes."""
        return self.stored.file

    def base(self) -> OpenTable | None:
        """The file below the changes, which may not be written yet."""
        if self._content is None or self.stored.file is None:
            return super().base()
        return OpenTable(memoryview(self._content), self.stored.file)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a key, or (None) remove it."""
        below = self.base()
        if below is not None:
            if below.get(key) == value:
                self.changes.pop(key, None)
            else:
                self.changes[key] = value
        elif value is None:
            self.stored.inline.pop(key, None)
        else:
            self.stored.inline[key] = value

    def size(self) -> int:
        """Bytes it takes in the root beyond a fixed few, at most."""
        held: Mapping[bytes, bytes | None] = self.stored.inline if self.file is None else self.changes
        return sum(len(key) + len(value or b"") + OVERHEAD for key, value in held.items())

    def held(self) -> int:
        """Bytes of its keys and values with what any encoding adds to them, at most; `LEAST_ENTRY` each at least."""
        if self.file is None:
            return max(self.size(), LEAST_ENTRY * len(self.stored.inline))
        removed = sum(new is None for new in self.changes.values())
        entries = self.file.count + len(self.changes) - 2 * removed
        return max(self.file.length + self.size(), LEAST_ENTRY * entries)

    def fold(self, name: bytes, *, into_file: bool = False) -> bytes | None:
        """Apply the changes: into the root where the result is small, else into a new file with that name.

        Gives the name of the file it replaces.
        """
        replaced = None if self.file is None else self.file.name
        items = list(self.items())
        if not into_file and sum(len(key) + len(value) + OVERHEAD for key, value in items) < INLINE:
            self.stored, self._content = Table(self.stored.kind, dict(items)), None
        else:
            self._content = content = encode_table(items)
            self.stored = Table(self.stored.kind, {}, TableFile(name, len(content), content[-TRAILER:], len(items)))
        self.changes = {}
        return replaced

    def new_file(self) -> tuple[str, bytes] | None:
        """Path and content of the file to be written before the root, if there is one."""
        return None if self._content is None or self.file is None else (self.file.path, self._content)

    def table(self) -> Table:
        """As the next root holds it, without its changes."""
        return Table(self.stored.kind, dict(sorted(self.stored.inline.items())), self.file)
