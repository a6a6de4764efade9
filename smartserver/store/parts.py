"""Large texts: they are read in parts, and all their readers together keep a bounded number of bytes.

A text is decoded while its reader asks for parts. A reader keeps the memory for decoding, zstd's window and a base,
while all readers together are within the bound. Beyond the bound, the reader with the most memory frees it. That reader
then decodes its text again up to its position, and keeps a share of the following text, so that this happens seldom.
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
"""The size in bytes above which a text is read in parts."""

PART: Final = 128 << 10
"""The most bytes of a part, and the most bytes of a frame that are read at once."""

HELD: Final = 64 << 20
"""The most bytes that all readers of large texts keep together. A reader needs up to 2 MiB for a text that this release
pushed, up to 64 MiB for another text with a base, and up to 128 MiB for any other text."""

FEWEST: Final = 4
"""The smallest number of shares into which `HELD` is divided."""


class Source(NamedTuple):
    """The parts of a text from some byte on. `held`: the most bytes that their decoder keeps in memory."""

    parts: Iterator[Buffer]
    held: int


class PartedText:
    """Reads a text of `length` bytes in parts, and keeps none of them. Iterating raises ValueError if the text does not
    match its key, or cannot be decoded.

    `open_`: begins to decode the text, and calls its argument with the bytes to charge. `proof`: checks the text before
    the last part is returned. `charge`: charges the first decoding; decoding again because of other readers is free."""

    def __init__(self, open_: Callable[[Charge], Source], length: int, proof: TextProof | None, charge: Charge) -> None:
        self._open = open_
        self._charge = charge
        self._length = length
        self._proof = proof
        self._at = 0
        self._source: Source | None = None
        """The remaining parts of the text; None if it must be decoded again."""

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
        next(source.parts, None)  # The decoder checks that nothing follows.
        if proof is not None:
            proof.finish()
        return part

    def _begin(self) -> Source:
        """Decode the text up to the position. Return the rest or, if the readers' memory does not suffice, the next
        bytes of the rest."""
        if not self._at:
            return self._open(self._charge)
        source = self._open(lambda size: self._charge(0))  # This raises Cancelled if the client has disconnected.
        rest = _after(self._at, source.parts)
        share = _kept.share(self, source.held)
        if not share:
            return Source(rest, source.held)
        ahead = bytearray()
        for part in rest:
            ahead += part
            if share <= len(ahead) < self._length - self._at:  # At the end, the decoder checks that nothing follows.
                break
        return Source(cut(memoryview(ahead)), len(ahead))

    def drop(self) -> None:
        """Free the memory of the decoder. For the next part, the text is decoded again from its start."""
        self._source = None


class _Kept:
    """The number of bytes that each reader keeps, the least recently used reader first."""

    def __init__(self) -> None:
        self._held: dict[weakref.ref[PartedText], int] = {}
        self._lock = threading.Lock()

    def use(self, reader: PartedText, held: int) -> None:
        """Note that a reader keeps `held` bytes. While all readers together exceed the limit, call `drop` of the one
        with the most bytes; among equal ones, of the least recently used."""
        with self._lock:
            self._held = self._others(reader)
            self._held[weakref.ref(reader)] = min(held, HELD)
            while sum(self._held.values()) > HELD:
                largest = max(self._held, key=self._held.__getitem__)
                self._held[largest] = 0
                if (other := largest()) is not None:
                    other.drop()

    def share(self, reader: PartedText, held: int) -> int:
        """Return the bytes of text that a reader may keep in place of its decoder; 0 if the decoder's `held` bytes fit
        into the limit."""
        with self._lock:
            others = self._others(reader)
        if sum(others.values()) + min(held, HELD) <= HELD:
            return 0
        return HELD // max(FEWEST, len(others) + 1)

    def _others(self, reader: PartedText) -> dict[weakref.ref[PartedText], int]:
        return {other: held for other, held in self._held.items() if other() not in (None, reader)}


_kept: Final = _Kept()


def _after(passed: int, parts: Iterator[Buffer]) -> Iterator[Buffer]:
    """Yield the parts without their first `passed` bytes."""
    for part in parts:
        if passed < len(part):
            yield memoryview(part)[passed:] if passed else part
        passed = max(0, passed - len(part))


def cut(text: Buffer) -> Iterator[Buffer]:
    """Cut a whole text into parts."""
    view = memoryview(text)
    return (view[at : at + PART] for at in range(0, len(text), PART))


ALONE = 32 << 20
"""The bytes of a record's text and its base's text above which records are decoded one at a time, so that all pushes to
this process together hold the texts of one. The largest takes 1 s, and 16 s if it must be encoded again."""

_turn = threading.Lock()
"""The lock that is held while a large record is decoded."""


LOOK = 0.5
"""Seconds between two calls of `go_on`, which checks that the client of a waiting push is still connected."""


@contextlib.contextmanager
def turn(chain_kib: int, length: int, base_length: Callable[[], int], go_on: Callable[[], None]) -> Iterator[None]:
    """Return a context for decoding a record. For a large record, wait until no other large one is decoded. `length`:
    the bytes of its text. `base_length`: returns the bytes of its base; called only if `chain_kib`, the KiB of all
    texts of its chain, is large enough. `go_on`: is called while waiting, and may raise an error to end the wait."""
    if chain_kib <= ALONE >> 10 or length + base_length() <= ALONE:
        yield
        return
    while not _turn.acquire(timeout=LOOK):
        go_on()
    try:
        yield
    finally:
        _turn.release()
