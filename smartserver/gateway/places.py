"""The programs of git that may serve fetches at a time. Further requests wait, those of the address with the fewest
programs the least. It runs on the thread that moves the bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

MAX_PROGRAMS: Final = 64
"""Each has some 10 MB of memory of its own where there are bitmaps, and maps the packs that it sends. Where a cache was
built just now it also has 100 bytes for each object of the repository."""


class Places:
    """The places of programs."""

    def __init__(self, most: int = MAX_PROGRAMS) -> None:
        self._free = most
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[str, Callable[[], None]]] = []

    def take(self, address: str, begin: Callable[[], None]) -> None:
        """Call `begin` once there is a place, which is its own until `leave`."""
        self._waiting.append((address, begin))
        self._begin()

    def forget(self, begin: Callable[[], None]) -> None:
        """Drop a request that waits: its client is gone. Else requests of lost connections would pile up."""
        self._waiting = [each for each in self._waiting if each[1] != begin]

    def leave(self, address: str) -> None:
        """A place is free."""
        self._free += 1
        self._taken[address] -= 1
        self._taken += Counter()  # An address without programs is forgotten.
        self._begin()

    def _begin(self) -> None:
        while self._free and self._waiting:
            at = min(range(len(self._waiting)), key=lambda each: self._taken[self._waiting[each][0]])
            address, begin = self._waiting.pop(at)
            self._free -= 1
            self._taken[address] += 1
            begin()
