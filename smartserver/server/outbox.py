"""What a connection has to send: a carrier is handed a slice at a time, and no more while it has enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from smartserver.wire.limits import KIB

SLICE = 128 * KIB
"""Bytes handed to the carrier at a time, which Twisted sends in one go: when it asks for more, the peer takes bytes."""


class Outbox:
    """The bytes that the carrier was not handed yet."""

    def __init__(self) -> None:
        self.full = False
        """Whether the carrier has enough to send."""
        self._unsent: deque[bytes | memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._unsent)

    @property
    def size(self) -> int:
        """Bytes in it."""
        return sum(map(len, self._unsent))

    def add(self, content: bytes) -> None:
        """Send this after what is there."""
        self._unsent.append(content)

    def hand_over(self, write: Callable[[bytes], object]) -> int:
        """Give the carrier what it takes now; how many bytes."""
        handed = 0
        while self._unsent and not self.full:
            first = self._unsent.popleft()
            if len(first) > SLICE:
                view = memoryview(first)
                self._unsent.appendleft(view[SLICE:])
                first = view[:SLICE]
            handed += len(first)
            write(bytes(first))  # Which may say that it has enough.
        return handed

    def clear(self) -> None:
        """Forget it."""
        self._unsent.clear()
