"""The records of a stream so far: found by key, their texts decoded again when they are asked for.

Nothing of the size of the texts is kept but the most recent ones: the rest is read back from the quarantined pack.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from smartserver.errors import shown
from smartserver.records.cache import Cache
from smartserver.records.delta import decompress
from smartserver.records.model import Key, Record, made
from smartserver.store.index import ONE_BYTE, Row
from smartserver.store.native import Prover
from smartserver.store.numbered import Numbered

TEXT_BYTES = 40 << 20
"""Bytes of fulltext kept. With 64 MiB a whole history decodes each base 1.7 times; a first push of 12,502 commits then
takes the server 2 to 10 % less CPU and 25 MB more. 48 MiB cannot be told from 40 by CPU, and a push of 62,510 commits
takes 19 MB more with them; with 32 MiB it takes a sixth more CPU."""

NO_BASE = -1
STORED_BASE = -2
"""In the base column: the base lies in the repository."""


def _cost(record: Record) -> int:
    return len(record.text) + len(record.key)


class RecentRecords:
    """Records by kind and key, the least recently used dropped first; for one thread."""

    def __init__(self, limit: int = TEXT_BYTES) -> None:
        self._largest = limit // 2
        self._records = Cache[tuple[int, Key], Record](limit, _cost)

    def get(self, kind: int, key: Key) -> Record | None:
        """That record, if it is still here."""
        return self._records.get((kind, key))

    def put(self, record: Record) -> None:
        """Keep a record, the first of its key; the largest ones are not worth what they would push out."""
        if len(record.text) <= self._largest and self.get(record.kind, record.key) is None:
            self._records.put((record.kind, record.key), record)

    def clear(self) -> None:
        """Keep none."""
        self._records.clear()


class Frame(NamedTuple):
    """Where a frame of the stream lies in the quarantined pack, and how it decodes."""

    encoding: int
    offset: int
    size: int
    length: int
    """Bytes of the fulltext."""
    base: int
    """The number of its base, `NO_BASE` or `STORED_BASE`."""
    stored: Key
    """Key of a base that is stored, else empty."""


class Arrivals:
    """The records of the new revisions of one stream, numbered as they came."""

    def __init__(
        self, names: Numbered, read: Callable[[int, int], bytes], stored: Callable[[int, Key], Record | None]
    ) -> None:
        """`names`: `Numbering.records`. `read`: bytes of the quarantined pack, by offset and size. `stored`: a record
        of the repository."""
        self._read = read
        self._stored = stored
        self._names = names
        self._copies = array("I")
        """Of the first copy of a record the newest one, and of each other one the one that was the newest before."""
        self._metas = array("I")
        """Each a number in `_known_metas`."""
        self._known_metas = Numbered()
        self._ordinals = array("I")
        self._encodings = bytearray()
        self._offsets = array("Q")
        self._sizes = array("I")
        self._lengths = array("I")
        self._bases = array("i")
        self._stored_keys: dict[int, Key] = {}
        self._depths = array("I")
        self._chains = array("I")
        self._lineages = array("I")
        self.recent = RecentRecords()

    def __len__(self) -> int:
        return len(self._ordinals)

    def add(self, kind: int, key: Key, meta: bytes, ordinal: int, frame: Frame, row: Row) -> int:
        """Append a record that the revision `ordinal` introduced and give its number."""
        number = len(self._ordinals)
        first = self._names.add(ONE_BYTE[kind] + key)
        self._copies.append(number if first == number else self._copies[first])
        self._copies[first] = number
        known = self._known_metas.find(meta)
        self._metas.append(self._known_metas.add(meta) if known < 0 else known)
        encoding, offset, size, length, base, stored = frame
        self._ordinals.append(ordinal)
        self._encodings.append(encoding)
        self._offsets.append(offset)
        self._sizes.append(size)
        self._lengths.append(length)
        self._bases.append(base)
        if stored:
            self._stored_keys[number] = stored
        depth, chain_kib, lineage = row
        self._depths.append(depth)
        self._chains.append(chain_kib)
        self._lineages.append(lineage)
        return number

    def extend(self, prover: Prover, stored: int) -> None:
        """Append what a prover has beyond this. `stored`: the ordinal of its first revision."""
        names, metas, frames, (*rests, stored_keys), rows = prover.columns(len(self))
        start, copies = 0, self._copies
        for end in names[1]:
            number = len(copies)
            first = self._names.add(names[0][start:end])
            copies.append(number if first == number else copies[first])
            copies[first] = number
            start = end
        known = [self._known_metas.find(meta) for meta in metas[0]]
        known = [self._known_metas.add(meta) if at < 0 else at for meta, at in zip(metas[0], known, strict=True)]
        self._metas.extend([known[number] for number in metas[1]])
        self._ordinals.extend([stored + revision for revision in array("I", frames[0])])
        self._encodings += frames[1]
        self._offsets.frombytes(frames[2])
        for column, numbers in zip(
            (self._sizes, self._lengths, self._bases, self._depths, self._chains, self._lineages),
            (frames[3], *rests, *rows),
            strict=True,
        ):
            column.frombytes(numbers)
        self._stored_keys.update(stored_keys)

    def move(self, number: int, frame: Frame) -> None:
        """Say where a record came to lie, and how it is encoded there."""
        self._encodings[number] = frame.encoding
        self._offsets[number] = frame.offset
        self._sizes[number] = frame.size
        self._bases[number] = frame.base
        self._stored_keys.pop(number, None)
        if frame.stored:
            self._stored_keys[number] = frame.stored

    def first(self, kind: int, key: Key) -> int | None:
        """The number of a record's first copy."""
        found = self._names.find(ONE_BYTE[kind] + key)
        return None if found < 0 else found

    def meta(self, kind: int, key: Key) -> bytes | None:
        """The meta of a record's first copy; None where it did not come."""
        number = self.first(kind, key)
        return None if number is None else self._known_metas.key(self._metas[number])

    def length(self, kind: int, key: Key) -> int:
        """Bytes of a record's text; 0 where it did not come."""
        number = self.first(kind, key)
        return 0 if number is None else self._lengths[number]

    def ordinals_newest_first(self, kind: int, key: Key) -> Sequence[int]:
        """The revisions of the stream that introduced a record, the newest one first."""
        found = self._names.find(ONE_BYTE[kind] + key)
        if found < 0:
            return ()
        ordinals = []
        copy = found
        while (copy := self._copies[copy]) != found:
            ordinals.append(self._ordinals[copy])
        ordinals.append(self._ordinals[found])
        return ordinals

    def row(self, number: int) -> Row:
        """Depth, chain and lineage of a copy."""
        return made(Row, (self._depths[number], self._chains[number], self._lineages[number]))

    def key(self, number: int) -> Key:
        """The key of a copy."""
        return self._names.key(number)[1:]

    def bases(self, first: int) -> Sequence[int]:
        """Of each copy from number `first` on, the number of its base, negative where that is no copy."""
        return self._bases[first:]

    def base(self, number: int) -> tuple[int | None, Key]:
        """The number of a copy's base; None and its key where it is stored; None and nothing where there is none."""
        base = self._bases[number]
        return (base, self.key(base)) if base >= 0 else (None, self._stored_keys.get(number, b""))

    def record(self, kind: int, key: Key) -> Record | None:
        """A record of the stream, else of the repository, else None; decoded as far as it is not recent.

        Raises:
            CorruptFile: a stored base is damaged.
        """
        found = self.recent.get(kind, key)
        if found is None:
            number = self.first(kind, key)
            found = self._stored(kind, key) if number is None else self._decode(number)
            if found is not None:
                self.recent.put(found)
        return found

    def _decode(self, number: int) -> Record:
        """A copy: down its chain to what is recent, full or stored, and up again."""
        chain = [number]
        text = b""
        while True:
            base, key = self.base(chain[-1])
            if not key:
                break
            kind = self._names.key(number)[0]
            known = self.recent.get(kind, key) or (self._stored(kind, key) if base is None else None)
            if known is not None:
                text = known.text
                break
            if base is None:
                raise LookupError(f"the stored base {shown(key)} is gone")
            chain.append(base)
        while True:
            number = chain.pop()
            frame = self._read(self._offsets[number], self._sizes[number])
            text = decompress(self._encodings[number], frame, self._lengths[number], text)
            name = self._names.key(number)
            record = Record(name[0], name[1:], self._known_metas.key(self._metas[number]), text)
            if not chain:
                return record
            self.recent.put(record)
