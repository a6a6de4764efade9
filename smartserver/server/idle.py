"""Timeouts for a peer that is idle. This module has no clock and does no I/O: it is told the time and the events, and
tells the session what to do.

Only idleness is timed, never a total, and only while the peer is the one to act: it owes the rest of a request, takes
nothing of its answers, has not closed after all was sent, or holds a connection for a request to come. While the server
works for it, a peer may be silent for as long as that takes.
"""

from __future__ import annotations

from collections.abc import Callable

from smartserver.server.outbox import Outbox
from smartserver.server.session import Session
from smartserver.wire.limits import DRAIN_BYTES, DRAIN_SECONDS, KEEP_IDLE, PING_INTERVAL

PROBE_INTERVAL = 0.375
"""Seconds between two PINGs to a peer that sends no more and whose answer is not ready. A peer that is gone looks
like one that waits, until the system refuses what is written to it: the second PING ends the work for it."""

TICKS = 4
"""Looks at the time of a peer, before it is over."""


class IdleTimeouts:
    """The times of one connection."""

    def __init__(
        self,
        session: Session,
        outbox: Outbox,
        unacknowledged: Callable[[], int],
        *,
        idle: float,
        drain_time: float,
        refused: bool = False,
    ) -> None:
        """`unacknowledged`: counts the bytes the peer has not taken of those that were handed to the carrier. `idle`:
        seconds a peer in the middle of something may do nothing; `drain_time`: seconds one told to leave is open
        at most; `refused`: whether the connection was one too many."""
        self._session = session
        self._outbox = outbox
        self._unacknowledged = unacknowledged
        self._idle = idle
        self._drain_time = drain_time
        self._refused = refused
        self.closing = False
        """True when nothing more is taken or begun."""
        self.read_ended = False
        """True when the peer sends no more."""
        self.sent_all: float | None = None
        """When the last byte was sent and this direction closed."""
        self._drained = 0
        """Bytes that came while it is closing, which nobody reads."""
        self._heard = 0.0
        """When the peer last sent something, or took something that had to wait."""
        self._spoke = 0.0
        self._used = 0.0
        """When it was opened, or last known to be used for a request or its answer; signs of life are no use."""
        self._moved = 0.0
        """When the peer is last known to have taken something, or the carrier got the first that it has not sent."""
        self._untaken = 0
        """Bytes the peer had not taken when that was looked at."""
        self._handed = 0
        """Bytes handed to the carrier since."""
        self._pinged = 0.0
        self._discarding = (0, 0.0)
        """The refused request whose upload still comes, and since when that is known."""
        self._leave_by: float | None = None
        """When one that was told to leave is closed, whatever its peer does."""

    # -- what happens

    def begin(self, now: float) -> None:
        """The connection is open."""
        self._heard = self._moved = self._spoke = self._used = now

    def note_received(self, now: float, size: int = 0) -> None:
        """Bytes came; or (none) could not be received until now."""
        self._heard = now
        if self.closing:
            self._drained += size
        elif size and self._session.receiving:
            self._used = now

    def note_written(self, now: float) -> None:
        """Something is sent, or has to wait for the peer."""
        self._spoke = now
        if not self._session.idle:  # The last that is written of a request ends it.
            self._used = now
        if not self._outbox.full:
            self._moved = now

    def note_handed(self, size: int) -> None:
        """The carrier gets bytes to send."""
        self._handed += size

    def note_taken(self, now: float) -> None:
        """The peer took something."""
        self._heard = self._moved = now
        if self._session.had_request:
            self._used = now

    def must_leave(self, now: float) -> None:
        """The peer was told to leave."""
        self._leave_by = now + self._drain_time

    # -- what to do

    @property
    def leaving(self) -> bool:
        """True if the peer was told to leave, so that somebody else has its place."""
        return self._leave_by is not None

    @property
    def has_drained(self) -> bool:
        """True if a peer that is closing had its bytes."""
        return self._drained > DRAIN_BYTES

    def idle_since(self, now: float) -> float | None:
        """Since when it is used for nothing: no request is open or on its way, or everything was said. None while it is
        used. It was from its last request, and the last that was taken of an answer; a peer without a request is idle
        from the beginning, whatever else it sends and takes."""
        session = self._session
        rests = session.at_rest and not (self._outbox and session.had_request)
        if not (self.sent_all is not None if self.closing else rests):
            return None
        self._measure(now)
        return max(self._used, self.sent_all or self._used)

    def look(self, now: float) -> bool:
        """Tell the session what to do now; whether the peer had its time to read what was sent, and to close too."""
        self._measure(now)
        if self.closing:
            return self._is_over(now)
        session, silent = self._session, now - self._heard
        number, since = self._discarding
        if session.discarding != number:
            self._discarding = (session.discarding, now)
        if self._outbox.full and now - self._moved >= self._idle:
            session.abort(f"the client read nothing of its answer for {now - self._moved:.0f} s")
        elif session.awaiting and silent >= self._idle:
            session.drop(f"nothing of the rest of a request came for {silent:.0f} s")
        elif session.discarding:
            if session.discarding == number and now - since >= DRAIN_SECONDS:
                session.discard_no_more(f"it still came {now - since:.0f} s after that")
        elif session.idle and min(silent, now - self._spoke) >= self._keep:
            self.must_leave(now)
            session.go_away(f"no request for {self._keep:.0f} s")
        elif session.pinging and min(silent, now - self._pinged) >= self._ping_interval:
            self._pinged = now
            session.ping()
        return False

    def next_look(self, now: float) -> float:
        """Seconds until it is to be looked at again."""
        often = min(self._ping_interval, self._idle / TICKS)
        return often if self._leave_by is None else min(often, self._leave_by - now)

    def _is_over(self, now: float) -> bool:
        """True if a peer that is closing had its time.

        What was asked is sent on for as long as the peer takes it, unless somebody else needs the place. That all of it
        is sent says only that the kernel has it: what the peer still takes from there counts too.
        """
        since, most = self._moved, self._idle
        if self.sent_all is not None:
            since, most = max(self._moved, self.sent_all), DRAIN_SECONDS
        return now - since >= most or (self._leave_by is not None and now >= self._leave_by)

    @property
    def _ping_interval(self) -> float:
        return PROBE_INTERVAL if self.read_ended else PING_INTERVAL

    @property
    def _keep(self) -> float:
        """Seconds a connection is kept without a request: who has never made one holds none for later."""
        if self._refused:
            return DRAIN_SECONDS
        return KEEP_IDLE if self._session.had_request else min(KEEP_IDLE, self._idle)

    def _measure(self, now: float) -> None:
        """Look at how many bytes are not taken, unless nothing was there to be taken. It shows whether the peer took
        any since the last look, be it one byte: no least rate is asked of it. Of what was handed over since then it
        may have taken all long ago; where some is left, it is taking it.
        """
        if not self._untaken and not self._handed:
            return
        left = self._unacknowledged()
        if left < self._untaken or 0 < left < self._untaken + self._handed:
            self.note_taken(now)
        self._untaken, self._handed = left, 0
