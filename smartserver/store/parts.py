"""Large texts in parts: what all their readers hold together is bounded, however many of them stop.

A text is decoded as its reader asks for it. What that needs meanwhile, zstd's window and a base, is kept for the
readers that asked last; the others decode it once more up to where they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from smartserver.records.cache import Cache
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


_sources: Final = Cache[object, Source](HELD, lambda source: min(source.held, HELD))
_lock: Final = threading.Lock()


def _take(reader: object) -> Source | None:
    with _lock:
        return _sources.pop(reader)


def _keep(reader: object, source: Source) -> None:
    with _lock:
        _sources.put(reader, source)


def in_parts(open_: Callable[[], Source], length: int, proof: TextProof | None) -> Iterator[Buffer]:
    """A text of `length` bytes. `open_` begins to decode it; `proof` checks it before its last part is given.

    Raises:
        ValueError: it is not what its key says, or cannot be decoded.
    """
    reader = object()
    at = 0
    try:
        while at < length:
            source = _take(reader)
            if source is None:
                source = open_()
                source = source._replace(parts=_after(at, source.parts))
            part = next(source.parts)
            at += len(part)
            if proof is not None:
                proof.update(part)
            if at < length:
                _keep(reader, source)
            else:
                next(source.parts, None)  # It looks whether anything follows.
                if proof is not None:
                    proof.finish()
            yield part
    finally:
        _take(reader)


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


def copied(text: bytes) -> Iterator[Buffer]:
    """A text that is there whole, in parts that do not keep it there."""
    return (text[at : at + 2 * PART] for at in range(0, len(text), 2 * PART))
