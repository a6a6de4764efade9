"""When a request is sent again. A repeat is always safe: the request's id tells the server that it is one."""

from __future__ import annotations

PAUSES = (0.2, 1.0)
"""Seconds before the second and third sending: a restarted server listens again within about a second."""


class Attempts:
    """The sendings of one request."""

    def __init__(self) -> None:
        self._made = 0

    def pause(self) -> float | None:
        """Seconds to wait before the next sending, or None when it was tried often enough."""
        if self._made == len(PAUSES):
            return None
        self._made += 1
        return PAUSES[self._made - 1]
