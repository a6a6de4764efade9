"""How long a peer may keep the server waiting. Pure: it is told the time and what happens, and says what to do.

Only idleness is timed, never a total, and only while the peer is the one to act: it owes the rest of a request, takes
nothing of its answers, has not closed after all was sent, or holds a connection for a request to come. While the server
works for it, a peer may be silent for as long as that takes.
"""

from __future__ import annotations

import enum
from typing import Protocol

from smartserver.wire.limits import DRAIN_SECONDS, KEEP_IDLE, PING_INTERVAL

PROBE_INTERVAL = 1.0
"""Seconds between two PINGs to a peer that sends no more and whose answer is not ready. A peer that is gone looks
like one that waits, until the system refuses what is written to it: the second PING ends the work for it."""

TICKS = 4
"""How often the time a peer is given is looked at before it is over."""


class Action(enum.Enum):
    """What a connection is to do now."""

    WAIT = "wait"
    PING = "ping"
    ABORT = "abort"
    """Close at once: the peer takes nothing."""
    DROP = "drop"
    """Say why, and close: the rest of a request does not come."""
    REFUSE_REST = "refuse the rest"
    """Finish what is open, and close: a refused upload still comes."""
    GO_AWAY = "go away"
    """Take no new requests, and close within `farewell`."""
    END = "end"
    """Close: the peer had its time to read what was sent, and to close too."""


class Requests(Protocol):
    """What the connection's requests wait for; `server.session.Session` has it."""

    asked: bool

    @property
    def idle(self) -> bool:
        """Whether no request is open."""

    @property
    def at_rest(self) -> bool:
        """Whether no request is open or on its way."""

    @property
    def awaiting(self) -> bool:
        """Whether the client owes the rest of a request or of a frame, and this side reads."""

    @property
    def pinging(self) -> bool:
        """Whether this side gives and asks for signs of life."""

    @property
    def discarding(self) -> int:
        """The refused request whose upload still comes; 0 where there is none."""


class Patience:
    """The times of one connection."""

    def __init__(self, idle: float, farewell: float, *, refused: bool = False) -> None:
        """`idle`: seconds a peer in the middle of something may do nothing; `farewell`: seconds one that was told to
        leave is open at most; `refused`: whether the connection was one too many."""
        self._idle = idle
        self._farewell = farewell
        self._refused = refused
        self.closing = False
        """Whether nothing more is taken or begun."""
        self.read_ended = False
        """Whether the peer sends no more."""
        self.sent_all: float | None = None
        """When the last byte was sent and this direction closed."""
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

    def begins(self, now: float) -> None:
        """The connection is open."""
        self._heard = self._moved = self._spoke = self._used = now

    def hears(self, now: float, *, of_request: bool = False) -> None:
        """Bytes came, or could not be heard until now; `of_request`: of one that is not whole."""
        self._heard = now
        if of_request:
            self._used = now

    def speaks(self, now: float, *, for_request: bool, full: bool) -> None:
        """Something is sent; `full`: it has to wait for the peer."""
        self._spoke = now
        if for_request:
            self._used = now
        if not full:
            self._moved = now

    def hands_over(self, size: int) -> None:
        """The carrier gets bytes to send."""
        self._handed += size

    def is_taken(self, now: float, *, asked: bool) -> None:
        """The peer took something; `asked`: it made a request before."""
        self._heard = self._moved = now
        if asked:
            self._used = now

    def leaves_untaken(self, now: float, left: int, *, asked: bool) -> None:
        """So many bytes are not taken. It shows whether the peer took any since the last look, be it one byte: no least
        rate is asked of it. Of what was handed over since then it may have taken all long ago; where some is left, it
        is taking it.
        """
        if left < self._untaken or 0 < left < self._untaken + self._handed:
            self.is_taken(now, asked=asked)
        self._untaken, self._handed = left, 0

    @property
    def may_have_taken(self) -> bool:
        """Whether anything was there to be taken at the last look, or since."""
        return bool(self._untaken or self._handed)

    def must_leave(self, now: float) -> None:
        """The peer was told to leave."""
        self._leave_by = now + self._farewell

    # -- what to do

    @property
    def idle_since(self) -> float:
        """Since when it is used for nothing, where it is not used: from its last request and the last that was taken of
        an answer. Whoever never asked anything is idle from the beginning, whatever else he sends and takes."""
        return max(self._used, self.sent_all or self._used)

    def look(self, now: float, requests: Requests, *, full: bool) -> tuple[Action, str]:
        """What to do now, and why; `full`: the peer is to take something before more is sent."""
        if self.closing:
            return (Action.END if self._is_over(now) else Action.WAIT), ""
        silent, action, why = now - self._heard, Action.WAIT, ""
        if full and now - self._moved >= self._idle:
            action, why = Action.ABORT, f"it took nothing of its answer for {now - self._moved:.0f} s"
        elif requests.awaiting and silent >= self._idle:
            action, why = Action.DROP, f"nothing of the rest of a request came for {silent:.0f} s"
        elif requests.discarding:
            number, since = self._discarding
            if requests.discarding == number and now - since >= DRAIN_SECONDS:
                action, why = Action.REFUSE_REST, f"it still came {now - since:.0f} s after that"
        elif requests.idle and min(silent, now - self._spoke) >= (keep := self._keep(requests)):
            action, why = Action.GO_AWAY, f"no request for {keep:.0f} s"
            self.must_leave(now)
        elif requests.pinging and min(silent, now - self._pinged) >= self._ping_interval:
            action = Action.PING
            self._pinged = now
        if requests.discarding != self._discarding[0]:
            self._discarding = (requests.discarding, now)
        return action, why

    def next_look(self, now: float) -> float:
        """Seconds until it is to be looked at again."""
        often = min(self._ping_interval, self._idle / TICKS)
        return often if self._leave_by is None else min(often, self._leave_by - now)

    def _is_over(self, now: float) -> bool:
        """Whether one that is closing had its time.

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

    def _keep(self, requests: Requests) -> float:
        """Seconds a connection is kept without a request: who has never made one holds none for later."""
        if self._refused:
            return DRAIN_SECONDS
        return KEEP_IDLE if requests.asked else min(KEEP_IDLE, self._idle)
