"""Limits the number of git programs that serve fetches at a time. Further requests wait; the address with the fewest
programs is next. All of this runs on the I/O thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

MAX_PROGRAMS: Final = 64
"""The most programs at a time. With bitmaps, each takes some 10 MB of memory, and maps the packs that it sends. On a
cache that was just built, it takes another 100 bytes for each object of the repository."""


class Places:
    """The places of running programs, and the requests that wait for a place."""

    def __init__(self, most: int = MAX_PROGRAMS) -> None:
        self._free = most
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[str, Callable[[], None]]] = []

    def take(self, address: str, begin: Callable[[], None]) -> None:
        """Call `begin` once a place is free. The request has the place until it calls `leave`."""
        self._waiting.append((address, begin))
        self._begin()

    def forget(self, begin: Callable[[], None]) -> None:
        """Drop a waiting request whose client has disconnected. Otherwise such requests would accumulate."""
        self._waiting = [each for each in self._waiting if each[1] != begin]

    def leave(self, address: str) -> None:
        """Free a place."""
        self._free += 1
        self._taken[address] -= 1
        self._taken += Counter()  # This drops addresses without programs.
        self._begin()

    def _begin(self) -> None:
        while self._free and self._waiting:
            at = min(range(len(self._waiting)), key=lambda each: self._taken[self._waiting[each][0]])
            address, begin = self._waiting.pop(at)
            self._free -= 1
            self._taken[address] += 1
            begin()
