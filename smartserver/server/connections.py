"""The open connections of one server process: how many there may be, and how they end when it stops."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from twisted.internet import defer

from smartserver.errors import ServerBusy
from smartserver.server.executor import Executor
from smartserver.server.limits import MAX_REFUSED, Limits
from smartserver.server.site import Site
from transports.errors import CodedError

log = logging.getLogger("smartserver")

PARTING = 2.0
"""Seconds a server that stops waits for peers whose requests are answered to close too; some hold a connection open for
a request to come."""

REPORT_EVERY = 60.0
"""Seconds between two lines in the log about connections that were refused, and about those that were let go."""

IDLE_ENOUGH = 10.0
"""Seconds a connection must have been idle to be let go for a new one: a client's first request comes with its first
flight, one round trip after it connected."""

DRAIN_TIME = 10.0
"""Seconds one that was let go is open at most; `Limits.idle` where that is less. No more than `IDLE_ENOUGH`, so that it
was open for at least as long before: on that the bound of `Connections` rests."""


class Timer(Protocol):
    """A call to come."""

    def active(self) -> bool:
        """True until the call was made or cancelled."""

    def cancel(self) -> None:
        """Forget it."""


class Clock(Protocol):
    """The part of a reactor's clock that is used."""

    def callLater(self, delay: float, call: Callable[[], object]) -> Timer:
        """Call this once, `delay` seconds from now."""

    def seconds(self) -> float:
        """The time, in seconds since some moment."""


class OpenSession(Protocol):
    """The part of the requests of a connection that is used (`server.session.Session`)."""

    @property
    def had_request(self) -> bool:
        """True once a request, or its first part, came."""

    @property
    def idle(self) -> bool:
        """True while no request is open."""

    def go_away(self, reason: str) -> None:
        """Take no new requests, and close once those that are open have their answers."""


class OpenTimeouts(Protocol):
    """The part of the times of a connection that is used (`server.idle.IdleTimeouts`)."""

    @property
    def closing(self) -> bool:
        """True when nothing more is taken or begun."""

    @property
    def sent_all(self) -> float | None:
        """When the last byte was sent and this direction closed."""

    def idle_since(self, now: float) -> float | None:
        """The time since which it is unused; None while it is used."""

    def must_leave(self, now: float) -> None:
        """The peer was told to leave."""


class OpenConnection(Protocol):
    """The part of a connection that is used (`server.shell.SessionProtocol`)."""

    @property
    def refusal(self) -> CodedError | None:
        """The reason why it is one too many."""

    @property
    def peer(self) -> str:
        """Its client, for the log."""

    @property
    def address(self) -> str:
        """Connections of one address are counted together."""

    @property
    def session(self) -> OpenSession:
        """Its requests."""

    @property
    def timeouts(self) -> OpenTimeouts:
        """Its times."""

    def lose(self) -> None:
        """Close it once everything is sent."""


class _RareLines:
    """Lines in the log of which one a minute is enough: a flood of connections is no flood of lines."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: float | None = None
        self._unsaid = 0

    def say(self, line: str) -> None:
        """Say it, or count it for the next."""
        now = self._clock.seconds()
        if self._said is not None and now - self._said < REPORT_EVERY:
            self._unsaid += 1
            return
        others = f" (and {self._unsaid} others since the last such line)" if self._unsaid else ""
        log.warning("%s%s", line, others)
        self._said, self._unsaid = now, 0


class Connections:
    """The open connections of one server process.

    There are no more than twice `limits.connections`, and `MAX_REFUSED` that are told to come later. Those that count
    are as many as the limit. The others were let go in the last `drain_time` seconds: each had been open for as long by
    then, so that all of them were together among those that counted when these seconds began.
    """

    def __init__(self, site: Site, executor: Executor, clock: Clock, limits: Limits | None = None) -> None:
        self.site = site
        self.executor = executor
        self.clock = clock
        self.limits = limits or Limits()
        self.open: set[OpenConnection] = set()
        self._counted: set[OpenConnection] = set()
        """The connections whose number is limited: neither refused nor told to leave."""
        self._none_before = 0.0
        """When to search again for a connection to evict: at the last search none had been idle for long enough."""
        self._refusal_lines = _RareLines(clock)
        self._eviction_lines = _RareLines(clock)
        self._empty: defer.Deferred[None] | None = None
        self._parting = False

    def admit(self, peer: str, address: str) -> CodedError | None:
        """Why another connection is one too many; None where there is room, or room could be made."""
        of_address = sum(each.address == address and each.refusal is None for each in self.open)
        if address and of_address >= self.limits.of_address:
            error = ServerBusy("connections from one address", self.limits.of_address)
        elif len(self._counted) >= self.limits.connections and not self._make_room():
            error = ServerBusy("connections", self.limits.connections)
        else:
            return None
        self._refusal_lines.say(f"{peer}: refused: {error}")
        return error

    def _make_room(self) -> bool:
        """Evict the connection that was idle the longest; whether there was one. Connections that only have to close
        come first, then those that never sent a request.

        It counts no more from now on, though it may stay open for `drain_time`. A full server searches for every new
        connection, and a search takes a while. After one that found none, it refuses without a search until one can
        have been idle for long enough.
        """
        now = self.clock.seconds()
        if now < self._none_before:
            return False
        idle = [(since, each) for each in self._counted if (since := each.timeouts.idle_since(now)) is not None]
        first = min((since for since, _ in idle), default=now)
        if first + IDLE_ENOUGH > now:
            self._none_before = first + IDLE_ENOUGH
            return False
        since, longest = min(
            ((since, each) for since, each in idle if since + IDLE_ENOUGH <= now),
            key=lambda found: (found[1].timeouts.sent_all is None, found[1].session.had_request, found[0]),
        )
        why = f"all {self.limits.connections} connections are in use, and this one was idle for {now - since:.0f} s"
        self._eviction_lines.say(f"{longest.peer}: let go: {why}")
        self._evict(longest, why)
        return True

    def _evict(self, one: OpenConnection, reason: str) -> None:
        """Let it take no new requests, and close: somebody else needs its place.

        A peer with a request has `drain_time` to take what it has not yet, and to close. Others are owed nothing.
        """
        self._counted.discard(one)
        one.timeouts.must_leave(self.clock.seconds())
        if not one.timeouts.closing:
            one.session.go_away(reason)
        if one.timeouts.sent_all is not None or not one.session.had_request:
            one.lose()

    @property
    def drain_time(self) -> float:
        """Seconds one that was let go is open at most."""
        return min(DRAIN_TIME, self.limits.idle)

    def release(self, one: OpenConnection) -> None:
        """A connection is let go because it asked nothing for too long: it has `drain_time` to close, and no place."""
        self._counted.discard(one)

    @property
    def may_refuse(self) -> bool:
        """True if another connection that is one too many can be told so."""
        return sum(each.refusal is not None for each in self.open) < MAX_REFUSED

    def opened(self, one: OpenConnection) -> None:
        """A connection is there."""
        self.open.add(one)
        if one.refusal is None:
            self._counted.add(one)

    def closed(self, one: OpenConnection) -> None:
        """A connection is gone."""
        self.open.discard(one)
        self._counted.discard(one)

    def changed(self, *, force: bool = False) -> None:
        """A connection closed, or has nothing left to say; with `force`, wait for the others no longer."""
        if self._empty is None:
            return
        if force or not self.open:
            empty, self._empty = self._empty, None
            empty.callback(None)
        elif not self._parting and all(each.timeouts.sent_all is not None for each in self.open):
            self._parting = True
            self.clock.callLater(PARTING, lambda: self.changed(force=True))

    def stop(self, seconds: float) -> defer.Deferred[None]:
        """Stop; fires when every connection has finished what it did, or after `seconds`."""
        done = self.go_away("the server is stopping")
        if not done.called:
            self.clock.callLater(seconds, self.cut)
        return done

    @property
    def busy(self) -> int:
        """Connections on which a request is open."""
        return sum(not each.session.idle for each in self.open)

    def cut(self) -> None:
        """Having been told to stop, wait no longer."""
        if self._empty is not None:
            if self.busy:
                log.warning("stopping: open requests are cut off (connections: %d)", self.busy)
            self.changed(force=True)

    def go_away(self, reason: str) -> defer.Deferred[None]:
        """Let every connection finish what it does and close; fires when none is left."""
        empty = self._empty = defer.Deferred[None]()
        self._parting = False
        for each in list(self.open):
            each.session.go_away(reason)
        self.changed()
        return empty
