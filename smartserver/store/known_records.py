"""`KnownRecords`: the records that a push may rest on, those of its stream and those that are stored.

A record that would lie too deep is encoded anew on one of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from smartserver.errors import shown
from smartserver.records.delta import compress
from smartserver.records.limits import (
    MAX_CHAIN,
)
from smartserver.records.model import BaseTag, Entry, Key, Record, made
from smartserver.records.segment import STORED
from smartserver.store import large
from smartserver.store.allowance import Allowance
from smartserver.store.arrivals import NO_BASE, STORED_BASE, Arrivals
from smartserver.store.index import Row, kib
from smartserver.store.numbered import Numbered
from smartserver.store.proof import SegmentProof
from smartserver.store.snapshot import Snapshot
from smartserver.store.stored_records import Location

REBASED_DEPTH = 47
"""The depth of a base that is chosen for it, at most: the next 16 pushes then need no encoding."""
HOPS = (32, 1024, 32768)
"""Distances of the k-ary base rule, k = 32."""


class KnownRecords:
    """The records of one stream so far, and of the snapshot that it is checked against."""

    def __init__(
        self, snapshot: Snapshot | None, allowance: Allowance, names: Numbered, read: Callable[[int, int], bytes]
    ) -> None:
        """`names`, `read`: as of `Arrivals`."""
        self._snapshot = snapshot
        self._allowance = allowance
        self.arrivals = Arrivals(names, read, self.stored)
        """The records of the stream."""

    def forget(self) -> None:
        """Drop the records of the stream."""
        self.arrivals = Arrivals(Numbered(), _nowhere, _nothing)

    def row(self, entry: Entry, base_key: Key | None, before: int) -> tuple[Row, int, Key]:
        """Depth, chain and lineage of an entry, record `before` of the stream; and its base as `Frame` says it."""
        if base_key is None:
            return Row(0, kib(entry.length), 0), NO_BASE, b""
        # The lowest copy, which is never in the stream where the repository has one.
        base = None if self._snapshot is None else self.stored_row(entry.kind, base_key)
        number, stored = STORED_BASE, base_key
        if base is None:
            first = self.arrivals.first(entry.kind, base_key)
            if first is None or first >= before:
                raise LookupError(f"base {shown(base_key)} was found a moment ago")
            base, number, stored = self.arrivals.row(first), first, b""
        depth, chain_kib, lineage = base
        return made(Row, (depth + 1, chain_kib + kib(entry.length), lineage + 1)), number, stored

    def encode_anew(
        self, proof: SegmentProof, entry: Entry, record: Record, row: Row, base_key: Key
    ) -> tuple[tuple[Entry, bytes], Row]:
        """The record on the base the k-ary rule names in its own chain, or in full."""
        chain = list(self._chain(entry.kind, base_key))
        for hop in HOPS:
            wanted = max(0, row.lineage - hop)
            # There is one: the base's own lineage is only one less.
            links = [link for link in chain if link[0].lineage >= wanted]
            chosen, place = min(links, key=lambda link: link[0].lineage)
            chain_kib = chosen.chain_kib + kib(entry.length)
            if chosen.depth > REBASED_DEPTH or chain_kib > MAX_CHAIN >> 10:
                continue
            base = self._link(entry.kind, place)
            if not proof.introduced(entry.kind, base.key):
                continue  # The copy the chain goes through may be another branch's.
            encoding, frame = compress(record.text, base.text)
            if encoding == STORED:
                break
            based = entry._replace(encoding=encoding, base=BaseTag.FULL_KEY, base_key=base.key, frame_length=len(frame))
            return (based, frame), Row(chosen.depth + 1, chain_kib, row.lineage)
        encoding, frame = compress(record.text)
        full = entry._replace(encoding=encoding, base=BaseTag.NONE, base_key=b"", frame_length=len(frame))
        return (full, frame), Row(0, kib(entry.length), row.lineage)

    def _chain(self, kind: int, key: Key | None) -> Iterator[tuple[Row, int | Location]]:
        """A record and the bases it rests on, as numbers of the stream, then places in the repository."""
        while key:
            location = None if self._snapshot is None else self._snapshot.first(kind, key)
            while location is not None and self._snapshot is not None:
                yield Row(location.depth, location.chain_kib, location.lineage), location
                location, key = self._snapshot.base(location), None
            number = self.arrivals.first(kind, key) if key else None
            if number is None:
                break
            yield self.arrivals.row(number), number
            _, key = self.arrivals.base(number)

    def _link(self, kind: int, place: int | Location) -> Record:
        if isinstance(place, int):
            return self.record(kind, self.arrivals.key(place))
        assert self._snapshot is not None  # The place is in it.
        return self._snapshot.record(place)

    def copies(self, kind: int, key: Key) -> Iterable[int]:
        """The ordinals of the revisions that introduced a record."""
        came = self.arrivals.ordinals_newest_first(kind, key)  # The newest is the likeliest to be an ancestor's.
        if len(came) > 1:
            self._allowance.charge(len(came) >> 2)  # Four are listed in the time of a step.
        return came if self._snapshot is None else chain(came, self._snapshot.introducers(kind, key))

    def metas(self, places: Sequence[tuple[int, Key]]) -> list[bytes]:
        """The metas of records that are in the stream or stored."""
        came = [self.arrivals.meta(*place) for place in places]
        stored = [place for place, meta in zip(places, came, strict=True) if meta is None]
        rest = iter(self._snapshot.metas(stored) if self._snapshot is not None else ())
        return [next(rest) if meta is None else meta for meta in came]

    def measure(self, kind: int, key: Key) -> tuple[bytes, int] | None:
        """Meta and text length of a record that came or is stored; None where it is neither. Nothing is decoded."""
        number = self.arrivals.first(kind, key)
        if number is None and not self.is_stored(kind, key):
            return None
        return self.metas([(kind, key)])[0], self.text_length(kind, key)

    @contextlib.contextmanager
    def read(self, kind: int, key: Key) -> Iterator[Record]:
        """A record that came or is stored, decoded under the rules of `_check`: charged, a large one in its turn."""
        if self.arrivals.recent.get(kind, key) is not None:
            yield self.record(kind, key)
            return
        number = self.arrivals.first(kind, key)
        base_length: Callable[[], int]
        if number is not None:
            row, base_length = (
                self.arrivals.row(number),
                partial(self.text_length, kind, self.arrivals.base(number)[1]),
            )
        else:
            snapshot = self._snapshot
            location = None if snapshot is None else snapshot.first(kind, key)
            if snapshot is None or location is None:
                raise LookupError(f"record {shown(key)} was found a moment ago")
            row = Row(location.depth, location.chain_kib, location.lineage)
            base_length = partial(_base_length, snapshot, location)
        self._allowance.decode(row.chain_kib << 10)
        with large.turn(row.chain_kib, self.text_length(kind, key), base_length, self._allowance):
            yield self.record(kind, key)

    def record(self, kind: int, key: Key) -> Record:
        """A record that is known to be there."""
        found = self.arrivals.record(kind, key)
        if found is None:
            raise LookupError(f"base {shown(key)} was found a moment ago")
        return found

    def stored(self, kind: int, key: Key) -> Record | None:
        """A record of the snapshot."""
        location = None if self._snapshot is None else self._snapshot.first(kind, key)
        if location is None or self._snapshot is None:
            return None
        return self._snapshot.record(location)

    def is_stored(self, kind: int, key: Key) -> bool:
        """Tell whether the snapshot has a record."""
        return self.stored_row(kind, key) is not None

    def stored_row(self, kind: int, key: Key) -> Row | None:
        """Depth, chain and lineage of a record of the snapshot."""
        return None if self._snapshot is None else self._snapshot.first_row(kind, key)

    def text_length(self, kind: int, key: Key | None) -> int:
        """The length of a base's text; 0 for no base."""
        if key is None:
            return 0
        stored = None if self._snapshot is None else self._snapshot.first(kind, key)
        return self.arrivals.length(kind, key) if stored is None else stored.length


def _base_length(snapshot: Snapshot, location: Location) -> int:
    base = snapshot.base(location)
    return 0 if base is None else base.length


def _nowhere(offset: int, size: int) -> bytes:
    raise LookupError(f"{size} bytes at {offset} of a pack that was let go of")


def _nothing(_kind: int, _key: Key) -> None:
    return None
