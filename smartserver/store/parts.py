"""Large texts in parts: what all their readers hold together is bounded, however many of them stop.

A text is decoded as its reader asks for it. What that needs meanwhile, zstd's window and a base, is kept for the
readers that asked last; the others decode it once more up to where they are.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from smartserver.records.check import TextProof
from smartserver.records.hunks import Buffer

LARGE: Final = 1 << 20
"""Bytes of a text over which it is given in parts."""

PART: Final = 128 << 10
"""Bytes of a part at most, and of a frame that are read at once."""

HELD: Final = 64 << 20
"""Bytes that all readers of large texts keep. One needs up to 2 MiB of a text that was pushed by this release, up to 64
of one with a base, and up to 128 of any."""


class Source(NamedTuple):
    """A text from some byte on, and what that keeps in memory at most."""

    parts: Iterator[Buffer]
    held: int


class PartedText:
    """A text of `length` bytes, in parts that nothing here keeps. `open_` begins to decode it; `proof` checks it before
    its last part is given.

    Iterating raises ValueError where it is not what its key says, or cannot be decoded.
    """

    def __init__(self, open_: Callable[[], Source], length: int, proof: TextProof | None) -> None:
        self._open = open_
        self._length = length
        self._proof = proof
        self._at = 0
        self._source: Source | None = None
        """What follows; None where it is to be decoded again."""

    def __iter__(self) -> Iterator[Buffer]:
        return self

    def __next__(self) -> Buffer:
        if self._at == self._length:
            raise StopIteration
        source, self._source = self._source, None
        if source is None:
            source = self._open()
            source = source._replace(parts=_after(self._at, source.parts))
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

    def drop(self) -> None:
        """Decode again what follows."""
        self._source = None


class _Kept:
    """The readers whose sources are kept, by how lately they were used."""

    def __init__(self) -> None:
        self._held: OrderedDict[weakref.ref[PartedText], int] = OrderedDict()
        self._lock = threading.Lock()

    def use(self, reader: PartedText, held: int) -> None:
        """Keep the source of a reader; where all hold too much, drop those that were used least lately."""
        with self._lock:
            for gone in [each for each in self._held if each() is None]:
                del self._held[gone]
            me = weakref.ref(reader)
            self._held.pop(me, None)
            self._held[me] = min(held, HELD)
            total = sum(self._held.values())
            while total > HELD:
                first, size = self._held.popitem(last=False)
                total -= size
                if (other := first()) is not None:
                    other.drop()


_kept: Final = _Kept()


def _after(passed: int, parts: Iterator[Buffer]) -> Iterator[Buffer]:
    """What follows the first `passed` bytes."""
    for part in parts:
        if passed < len(part):
            yield memoryview(part)[passed:] if passed else part
        passed = max(0, passed - len(part))


def cut(text: Buffer) -> Iterator[Buffer]:
    """What is there whole, in parts."""
    view = memoryview(text)
    return (view[at : at + PART] for at in range(0, len(text), PART))
