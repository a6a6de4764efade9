"""Large texts: they are given in parts, and all their readers together hold a bounded number of bytes.

A text is decoded as its reader asks for it. What that needs meanwhile, zstd's window and a base, is kept as long as all
of it has room. Beyond that the largest is dropped. Its reader decodes the text once more up to where it is, and then
keeps its share of the text ahead, so that it does so seldom.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from smartserver.records.charge import Charge
from smartserver.records.check import TextProof
from smartserver.records.hunks import Buffer

LARGE: Final = 1 << 20
"""Bytes of a text over which it is given in parts."""

PART: Final = 128 << 10
"""Bytes of a part at most, and of a frame that are read at once."""

HELD: Final = 64 << 20
"""Bytes that all readers of large texts keep. One needs up to 2 MiB of a text that was pushed by this release, up to 64
of one with a base, and up to 128 of any."""

FEWEST: Final = 4
"""Readers among whom that is shared out at least."""


class Source(NamedTuple):
    """A text from some byte on, and what that keeps in memory at most."""

    parts: Iterator[Buffer]
    held: int


class PartedText:
    """A text of `length` bytes, in parts that nothing here keeps. `open_` begins to decode it, and charges what it is
    given; `proof` checks it before its last part is given. `charge` is told of the text once: it is for others that it
    is decoded again. Iterating raises ValueError if it is not what its key says, or cannot be decoded."""

    def __init__(self, open_: Callable[[Charge], Source], length: int, proof: TextProof | None, charge: Charge) -> None:
        self._open = open_
        self._charge = charge
        self._length = length
        self._proof = proof
        self._at = 0
        self._source: Source | None = None
        """The rest of it, or some of that; None if it is to be decoded again."""

    def __iter__(self) -> Iterator[Buffer]:
        return self

    def __next__(self) -> Buffer:
        if self._at == self._length:
            raise StopIteration
        source, self._source = self._source, None
        part = None if source is None else next(source.parts, None)
        if source is None or part is None:
            source = self._begin()
            part = next(source.parts)
        self._at += len(part)
        proof = self._proof
        if proof is not None:
            proof.update(part)
        if self._at < self._length:
            self._source = source
            _kept.use(self, source.held)
            return part
        next(source.parts, None)  # It looks whether anything follows.
        if proof is not None:
            proof.finish()
        return part

    def _begin(self) -> Source:
        """The rest of it, or a share if the rest has no room."""
        if not self._at:
            return self._open(self._charge)
        source = self._open(lambda size: self._charge(0))  # Which ends it with its client.
        rest = _after(self._at, source.parts)
        share = _kept.share(self, source.held)
        if not share:
            return Source(rest, source.held)
        ahead = bytearray()
        for part in rest:
            ahead += part
            if share <= len(ahead) < self._length - self._at:  # Else it looks whether anything follows.
                break
        return Source(cut(memoryview(ahead)), len(ahead))

    def drop(self) -> None:
        """Decode again what follows."""
        self._source = None


class _Kept:
    """The readers, by how lately they were used, and what each keeps."""

    def __init__(self) -> None:
        self._held: dict[weakref.ref[PartedText], int] = {}
        self._lock = threading.Lock()

    def use(self, reader: PartedText, held: int) -> None:
        """Keep the source of a reader. If all hold too much, drop the largest, of equals the least lately used."""
        with self._lock:
            self._held = self._others(reader)
            self._held[weakref.ref(reader)] = min(held, HELD)
            while sum(self._held.values()) > HELD:
                largest = max(self._held, key=self._held.__getitem__)
                self._held[largest] = 0
                if (other := largest()) is not None:
                    other.drop()

    def share(self, reader: PartedText, held: int) -> int:
        """Bytes that a reader whose source was dropped may keep in its place; 0 where that has room again."""
        with self._lock:
            others = self._others(reader)
        if sum(others.values()) + min(held, HELD) <= HELD:
            return 0
        return HELD // max(FEWEST, len(others) + 1)

    def _others(self, reader: PartedText) -> dict[weakref.ref[PartedText], int]:
        return {other: held for other, held in self._held.items() if other() not in (None, reader)}


_kept: Final = _Kept()


def _after(passed: int, parts: Iterator[Buffer]) -> Iterator[Buffer]:
    """The parts without their first `passed` bytes."""
    for part in parts:
        if passed < len(part):
            yield memoryview(part)[passed:] if passed else part
        passed = max(0, passed - len(part))


def cut(text: Buffer) -> Iterator[Buffer]:
    """A whole text, in parts."""
    view = memoryview(text)
    return (view[at : at + PART] for at in range(0, len(text), PART))


ALONE = 32 << 20
"""Bytes of a record's text and its base's over which no other such record is decoded at the same time, so that all
pushes to this process together hold the texts of one. The largest takes 1 s, and 16 s if it must be encoded again."""

_turn = threading.Lock()
"""Held while a large record is decoded."""


LOOK = 0.5
"""Seconds between two looks at whether a push that waits for its turn is still wanted."""


@contextlib.contextmanager
def turn(chain_kib: int, length: int, base_length: Callable[[], int], go_on: Callable[[], None]) -> Iterator[None]:
    """A context in which a record is decoded: for a large one, it waits until no other is. `length` and `base_length`:
    of its text, and of its base's, which is asked for only if `chain_kib`, the KiB of all texts of its chain, leaves
    room for a large one. `go_on` is called while it waits, and may end that by raising."""
    if chain_kib <= ALONE >> 10 or length + base_length() <= ALONE:
        yield
        return
    while not _turn.acquire(timeout=LOOK):
        go_on()
    try:
        yield
    finally:
        _turn.release()
