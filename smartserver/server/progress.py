"""The progress of a request, for its client: how often it is told; said from any thread, sent from the connection's."""

from __future__ import annotations

from collections.abc import Callable

from smartserver.server.site import Site
from smartserver.wire.messages import Progress, encode

PROGRESS_INTERVAL = 0.5
"""Seconds between two PROGRESS messages of a request, and before the first."""

LARGE_UPLOAD = 1 << 20
"""Bytes of a body from which each phase after its end is named as it begins. A smaller one is mostly answered within
the half second, and its reply is one small flight."""


class RequestProgress:
    """The progress of one request."""

    def __init__(self, site: Site, send: Callable[[bytes], None]) -> None:
        self._site = site
        self._send = send
        self._last: float | None = None
        """When it was last said, or when it began; None: not yet."""
        self._said = ("", -1)
        self.names_phases = False
        """True if each phase is named as it begins."""
        self._received = 0
        """Bytes of its body, and how many of them are checked."""
        self._checked = 0
        self._ended = False

    def began(self, now: float) -> None:
        """It is being worked on, since now unless it was before."""
        if self._last is None:
            self._last = now

    def received(self, size: int) -> None:
        """So many bytes of its body came."""
        self._received += size

    def checked(self, size: int) -> None:
        """So many of them were looked at: its client is told once it has no more to send."""
        self._checked += size
        if self._ended:
            self.tell("check", self._checked, self._received)

    def ended(self) -> None:
        """Its body is whole."""
        self._ended = True
        self._last = self._site.clock()
        self.names_phases = self._received >= LARGE_UPLOAD
        if self.names_phases and self._checked < self._received:
            self.tell("check", self._checked, self._received)

    def tell(self, phase: str, done: int, total: int) -> None:
        """Say how far it is, twice a second and at the end of what was said; from any thread."""
        now = self._site.clock()
        begins = phase != self._said[0]
        ends = 0 < total <= done and not begins
        late = self._last is None or now - self._last >= PROGRESS_INTERVAL
        due = late or ends or (begins and self.names_phases)
        if due and (phase, done) != self._said:
            self._last, self._said = now, (phase, done)
            self._send(encode(Progress(phase, done, total)))
