"""Tables: sorted names with their values. A table never changes; a change makes a new one.

A table is sorted bytes with changes over them. Lookups search the bytes, so a table of 500,000 refs is opened without
decoding it. When there are many changes, the next table has them merged into its sorted bytes.

Sorted bytes are: the count, the offset of each entry and the end of the last one, and for each entry the length of the
key, the key and the value. They are part of a checkpoint, whose check covers them.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import accumulate, pairwise
from typing import Generic, TypeVar

from smartserver.errors import CorruptFile, InvalidName
from smartserver.records.limits import MAX_NAME

NUMBER = struct.Struct("<I")
SPAN = struct.Struct("<2I")
KEY = struct.Struct("<H")
"""The length of an entry's key, in bytes. The key and the value follow it."""

FEW = 1024
"""The number of changes that a table of any size may have over its sorted bytes."""
SHARE = 8
"""A table may have one more change for each `SHARE` entries of its sorted bytes. With more changes, the sorted bytes
are rewritten."""

OVERHEAD = 6
"""The most bytes that msgpack adds to a small entry of a table: 3 before the key and 3 before the value."""
LEAST_ENTRY = 120
"""The fewest bytes that an entry adds to the size of a state, because even the shortest ref takes 500 bytes of memory
in a client."""

V = TypeVar("V")


def check_name(name: bytes) -> None:
    """Raise InvalidName unless the name of a ref or entry has 1 to 1,024 bytes and no NUL."""
    if not 1 <= len(name) <= MAX_NAME:
        raise InvalidName(name[:MAX_NAME], f"it has {len(name)} bytes, expected 1 to {MAX_NAME}")
    if b"\0" in name:
        raise InvalidName(name, "it has a NUL byte")


def check_key(key: bytes) -> None:
    """Raise InvalidName unless a key of a map is valid: a name, or the name of a ref, NUL, and a name or an empty
    string."""
    of, belongs, name = key.partition(b"\0")
    check_name(of)
    if belongs and name:
        check_name(name)


class SortedBytes:
    """Encoded entries in key order. A lookup decodes only the entries that it compares."""

    def __init__(self, content: memoryview, path: str) -> None:
        """`path`: the path of the file that has the bytes, for errors."""
        self.content = content
        self._path = path
        try:
            self.count: int = NUMBER.unpack_from(content)[0]
            self._offsets = content[NUMBER.size : NUMBER.size * (self.count + 2)]
            self._entries = content[NUMBER.size * (self.count + 2) :]
            whole = NUMBER.unpack_from(self._offsets, NUMBER.size * self.count)[0] == len(self._entries)
        except struct.error:
            whole = False
        if not whole:
            raise CorruptFile(path, 0, f"a table of {len(content)} bytes whose sizes do not fit")

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        place = self._place(key)
        if place == self.count:
            return None
        found, value = self._entry(place)
        return value if found == key else None

    def starting(self, first: bytes) -> Iterator[bytes]:
        """Yield the keys that begin with `first`, in order."""
        for index in range(self._place(first), self.count):
            key, _ = self._entry(index)
            if not key.startswith(first):
                return
            yield key

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries in key order."""
        entries = bytes(self._entries)
        for start, end in pairwise(offset for (offset,) in NUMBER.iter_unpack(self._offsets)):
            split = start + KEY.size + (entries[start] | entries[start + 1] << 8)
            yield entries[start + KEY.size : split], entries[split:end]

    def _place(self, key: bytes) -> int:
        """Return the index of the first entry whose key is not less than `key`."""
        return bisect.bisect_left(range(self.count), key, key=lambda index: self._entry(index)[0])

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        start, end = SPAN.unpack_from(self._offsets, NUMBER.size * index)
        if not start + KEY.size <= end <= len(self._entries):
            raise CorruptFile(self._path, 0, f"entry {index} of a table from byte {start} to {end}")
        body = bytes(self._entries[start:end])
        split = KEY.size + (body[0] | body[1] << 8)
        return body[KEY.size : split], body[split:]


def encode_entries(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode entries, given in key order."""
    entries: list[bytes] = []
    last = b""
    for key, value in items:
        if key <= last:
            raise ValueError(f"table key {key!r} after {last!r}")
        entries.append(KEY.pack(len(key)) + key + value)
        last = key
    offsets = list(accumulate(map(len, entries), initial=0))
    return NUMBER.pack(len(entries)) + struct.pack(f"<{len(offsets)}I", *offsets) + b"".join(entries)


class Table(Mapping[bytes, bytes]):
    """A table with its kind: `ids` (its values keep revisions alive) or `opaque`. Iteration is in key order."""

    def __init__(self, kind: str, below: SortedBytes | None = None, size: int = 0) -> None:
        """`below`: the sorted bytes of the table. `size`: the bytes of the keys and values in `below`."""
        self.kind = kind
        self.size = size
        self._below = below
        self._over: dict[bytes, bytes | None] = {}
        self._count = 0 if below is None else below.count

    def __getitem__(self, key: bytes) -> bytes:
        if key in self._over:
            found = self._over[key]
        else:
            found = None if self._below is None else self._below.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self.walk())

    def __len__(self) -> int:
        return self._count

    def items(self) -> ItemsView[bytes, bytes]:
        """Return the entries in key order, in one walk."""
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """Return the values in key order, in one walk."""
        return _Values(self)

    def walk(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries in key order."""
        over = sorted(self._over.items(), reverse=True)
        for key, value in () if self._below is None else self._below.items():
            while over and over[-1][0] < key:
                yield from _present(over.pop())
            if over and over[-1][0] == key:
                yield from _present(over.pop())
            else:
                yield key, value
        for entry in reversed(over):
            yield from _present(entry)

    def starting(self, first: bytes) -> list[bytes]:
        """Return the keys that begin with `first`, in order."""
        stored = () if self._below is None else self._below.starting(first)
        keys = {key for key in (*stored, *self._over) if key.startswith(first)}
        return sorted(key for key in keys if key in self)

    @property
    def held(self) -> int:
        """The bytes that the table adds to the size of a state: the most that msgpack needs for it, but no fewer than
        `LEAST_ENTRY` for each entry."""
        return max(self.size + OVERHEAD * self._count, LEAST_ENTRY * self._count)

    def of_kind(self, kind: str) -> Table:
        """Return a table of another kind with the same entries."""
        return self._with(kind, self._over, self._count, self.size)

    def changed(self, changes: Iterable[tuple[bytes, bytes | None, bytes | None]]) -> Table:
        """Return the table after changes, each a key, its old value and its new value. None means that the key is
        absent."""
        over = dict(self._over)
        count, size = self._count, self.size
        for key, old, new in changes:
            if new is None and self._below is None:
                over.pop(key, None)
            else:
                over[key] = new
            count += (old is None) - (new is None)
            size += len(new or b"") - len(old or b"") + len(key) * ((old is None) - (new is None))
        table = self._with(self.kind, over, count, size)
        below = 0 if self._below is None else self._below.count
        if len(over) <= FEW + below // SHARE:
            return table
        return Table(self.kind, SortedBytes(memoryview(table.encode()), "memory"), table.size)

    def encode(self) -> bytes:
        """Return all entries as sorted bytes."""
        if self._below is not None and not self._over:
            return bytes(self._below.content)
        return encode_entries(self.walk())

    def _with(self, kind: str, over: dict[bytes, bytes | None], count: int, size: int) -> Table:
        table = Table(kind, self._below, size)
        table._over, table._count = over, count
        return table


def _present(entry: tuple[bytes, bytes | None]) -> Iterator[tuple[bytes, bytes]]:
    key, value = entry
    if value is not None:
        yield key, value


class _Items(ItemsView[bytes, V]):
    """The entries in one walk. The inherited view would look up each key."""

    _mapping: Table | DecodedTable[V]

    def __iter__(self) -> Iterator[tuple[bytes, V]]:
        return self._mapping.walk()  # type: ignore[return-value]


class _Values(ValuesView[V]):
    """The values in one walk. The inherited view would look up each key."""

    _mapping: Table | DecodedTable[V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.walk())  # type: ignore[misc]


class DecodedTable(Mapping[bytes, V], Generic[V]):
    """A table whose values are decoded on access. Iterates in key order."""

    def __init__(self, table: Table, decode: Callable[[bytes], V]) -> None:
        self._table = table
        self._decode = decode

    def __getitem__(self, key: bytes) -> V:
        return self._decode(self._table[key])

    def __contains__(self, key: object) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def walk(self) -> Iterator[tuple[bytes, V]]:
        """Return the entries in key order."""
        decode = self._decode
        return ((key, decode(value)) for key, value in self._table.walk())

    def items(self) -> ItemsView[bytes, V]:
        """Return the entries in key order, in one walk."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return the values in key order, in one walk."""
        return _Values(self)
