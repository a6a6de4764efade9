"""Timeouts for a peer that is idle. This module has no clock and does no I/O: the caller passes the time and the
events, and the module calls the session.

Only idleness is limited, never the total time, and only while the peer must act: send the rest of a request, read its
answers, close after everything was sent, or use its connection. While the server works for a peer, the peer may be
silent.
"""

from __future__ import annotations

from collections.abc import Callable

from smartserver.server.outbox import Outbox
from smartserver.server.session import Session
from smartserver.wire.limits import DRAIN_BYTES, DRAIN_SECONDS, KEEP_IDLE, PING_INTERVAL

PROBE_INTERVAL = 0.375
"""Seconds between two PINGs to a peer that sends no more and whose answer is not ready. A disconnected peer looks like
one that waits, until the system refuses bytes that are written to it. So the second PING ends the work for a
disconnected peer."""

TICKS = 4
"""The number of calls of `look` for a connection within its idle time."""


class IdleTimeouts:
    """The timeouts of one connection."""

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
        """`unacknowledged`: returns the number of bytes that were written to the carrier and not received by the peer.
        `idle`: the seconds that a peer may do nothing in the middle of a request or answer. `drain_time`: the most
        seconds that the connection stays open after its peer was told to disconnect. `refused`: True if the connection
        is refused because too many are open."""
        self._session = session
        self._outbox = outbox
        self._unacknowledged = unacknowledged
        self._idle = idle
        self._drain_time = drain_time
        self._refused = refused
        self.closing = False
        """True once the connection accepts no more input and begins no more work."""
        self.read_ended = False
        """True once the peer sends no more."""
        self.sent_all: float | None = None
        """The time when the last byte was sent and this direction was closed; None before."""
        self._drained = 0
        """Bytes that were received and ignored since the connection began to close."""
        self._heard = 0.0
        """The time when the peer last sent bytes, or received bytes that had to wait."""
        self._spoke = 0.0
        self._used = 0.0
        """The time when the connection was opened, or last known to be used for a request or its answer. PINGs do not
        count."""
        self._moved = 0.0
        """The time when the peer last received bytes, as far as is known, or when something was last written to a
        carrier that was not full."""
        self._untaken = 0
        """Bytes that the peer had not received at the last measurement."""
        self._handed = 0
        """Bytes passed to the carrier since the last measurement."""
        self._pinged = 0.0
        self._discarding = (0, 0.0)
        """The refused request whose upload still arrives, and the time since which that is known."""
        self._leave_by: float | None = None
        """The time when the connection is closed, even if the peer still uses it. None if the peer was not told to
        disconnect."""

    # -- what happens

    def begin(self, now: float) -> None:
        """Start the timeouts of an opened connection."""
        self._heard = self._moved = self._spoke = self._used = now

    def note_received(self, now: float, size: int = 0) -> None:
        """Record that `size` bytes were received; 0 means that reading was paused until now."""
        self._heard = now
        if self.closing:
            self._drained += size
        elif size and self._session.receiving:
            self._used = now

    def note_written(self, now: float) -> None:
        """Record that bytes were written, which may have to wait for the peer."""
        self._spoke = now
        if not self._session.idle:  # A request is open until its last bytes are written.
            self._used = now
        if not self._outbox.full:
            self._moved = now

    def note_handed(self, size: int) -> None:
        """Record that `size` bytes were passed to the carrier."""
        self._handed += size

    def note_taken(self, now: float) -> None:
        """Record that the peer received some bytes."""
        self._heard = self._moved = now
        if self._session.had_request:
            self._used = now

    def must_leave(self, now: float) -> None:
        """Record that the peer was told to disconnect."""
        self._leave_by = now + self._drain_time

    # -- what to do

    @property
    def leaving(self) -> bool:
        """True if the peer was told to disconnect, so that another connection can replace this one."""
        return self._leave_by is not None

    @property
    def has_drained(self) -> bool:
        """True if the peer sent more than `DRAIN_BYTES` since the connection began to close."""
        return self._drained > DRAIN_BYTES

    def idle_since(self, now: float) -> float | None:
        """Return the time since which the connection is idle; None while it is in use. A connection is idle if no
        request is open or being received, or if it is closing and everything was sent. The time counts from the last
        request, or from the last bytes of an answer that the peer received. A peer that sent no request is idle from
        the beginning."""
        session = self._session
        rests = session.at_rest and not (self._outbox and session.had_request)
        if not (self.sent_all is not None if self.closing else rests):
            return None
        self._measure(now)
        return max(self._used, self.sent_all or self._used)

    def look(self, now: float) -> bool:
        """Apply the timeouts to the session. Return True if the connection is closing, and the time for the peer to
        read the sent bytes and to close is over."""
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
        """Return the seconds until `look` must be called again."""
        often = min(self._ping_interval, self._idle / TICKS)
        return often if self._leave_by is None else min(often, self._leave_by - now)

    def _is_over(self, now: float) -> bool:
        """Return True if the time of a closing connection is over.

        Answers are sent for as long as the peer reads them, unless another connection needs the place. Bytes that were
        sent may still be in the kernel: the connection stays open for as long as the peer receives them.
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
        """Seconds that a connection is kept open without a request: fewer if the peer never sent one, or if the
        connection is refused."""
        if self._refused:
            return DRAIN_SECONDS
        return KEEP_IDLE if self._session.had_request else min(KEEP_IDLE, self._idle)

    def _measure(self, now: float) -> None:
        """Measure the bytes that the peer has not received yet, to see whether it received any since the last
        measurement. One byte is enough: no rate is required. If only a part of the bytes sent since then is left, the
        peer is receiving them; if nothing is left, the peer may have received them long ago.
        """
        if not self._untaken and not self._handed:
            return
        left = self._unacknowledged()
        if left < self._untaken or 0 < left < self._untaken + self._handed:
            self.note_taken(now)
        self._untaken, self._handed = left, 0
