"""The progress of a request, for its client. Any thread may report progress; the I/O thread sends it."""

from __future__ import annotations

from collections.abc import Callable

from smartserver.server.site import Site
from smartserver.wire.messages import Progress, encode

PROGRESS_INTERVAL = 0.5
"""Seconds between two PROGRESS messages of a request, and before the first."""

LARGE_UPLOAD = 1 << 20
"""The fewest bytes of a body whose later phases are reported when they begin. A smaller request is mostly answered
within half a second, and its reply is one small flight."""


class RequestProgress:
    """The progress of one request."""

    def __init__(self, site: Site, send: Callable[[bytes], None]) -> None:
        self._site = site
        self._send = send
        self._last: float | None = None
        """The time of the last message, or of the beginning; None before the beginning."""
        self._said = ("", -1)
        self.names_phases = False
        """True if each phase is reported as it begins."""
        self._received = 0
        """Bytes of the body that were received. Of these, `_checked` bytes are checked."""
        self._checked = 0
        self._ended = False

    def began(self, now: float) -> None:
        """Record that work on the request begins, at the first call."""
        if self._last is None:
            self._last = now

    def received(self, size: int) -> None:
        """Record that `size` bytes of the body were received."""
        self._received += size

    def checked(self, size: int) -> None:
        """Record that `size` bytes of the body were checked. The progress is reported to the client once it has sent
        the whole body."""
        self._checked += size
        if self._ended:
            self.tell("check", self._checked, self._received)

    def ended(self) -> None:
        """Record that the body is complete."""
        self._ended = True
        self._last = self._site.clock()
        self.names_phases = self._received >= LARGE_UPLOAD
        if self.names_phases and self._checked < self._received:
            self.tell("check", self._checked, self._received)

    def tell(self, phase: str, done: int, total: int) -> None:
        """Report the progress of a phase. A report is sent at most twice a second, and at the end of a reported phase.
        Any thread may call this."""
        now = self._site.clock()
        begins = phase != self._said[0]
        ends = 0 < total <= done and not begins
        late = self._last is None or now - self._last >= PROGRESS_INTERVAL
        due = late or ends or (begins and self.names_phases)
        if due and (phase, done) != self._said:
            self._last, self._said = now, (phase, done)
            self._send(encode(Progress(phase, done, total)))
