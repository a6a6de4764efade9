"""Large records are decoded one at a time: what all pushes to this process hold at once then is the texts of one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

LARGE = 32 << 20
"""Bytes of a record's text and its base's over which it is decoded while no other such one is. The largest takes 1 s,
and 16 s where it must be encoded again."""

_turn = threading.Lock()
"""Held while a large record is decoded."""
_NOBODY = contextlib.nullcontext()


LOOK = 0.5
"""Seconds between two looks at whether a push that waits for its turn is still wanted."""


def turn(
    chain_kib: int, length: int, base_length: Callable[[], int], go_on: Callable[[], None]
) -> AbstractContextManager[object]:
    """What to enter while a record is decoded: where it is large, that waits until no other is.

    `length` and `base_length`: of its text, and of its base's, which is asked for only where `chain_kib`, the KiB of
    all texts of its chain, leaves room for a large one. `go_on` is called while it waits, and ends that by what it
    raises.
    """
    large = chain_kib > LARGE >> 10 and length + base_length() > LARGE
    return _waited(go_on) if large else _NOBODY


@contextlib.contextmanager
def _waited(go_on: Callable[[], None]) -> Iterator[None]:
    while not _turn.acquire(timeout=LOOK):
        go_on()
    try:
        yield
    finally:
        _turn.release()
