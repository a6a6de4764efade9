"""The open connections of one server process: their limits, and their end when the process stops."""

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
"""Seconds that a stopping server waits for peers to close once all their requests are answered. Some peers keep a
connection open for later requests."""

REPORT_EVERY = 60.0
"""The least seconds between two log lines about refused connections, and between two lines about evicted
connections."""

IDLE_ENOUGH = 10.0
"""Seconds that a connection must have been idle before it is evicted for a new one. A client's first request arrives
one round trip after it connected."""

DRAIN_TIME = 10.0
"""The most seconds that an evicted connection stays open; `Limits.idle` if that is less.

The value must not exceed `IDLE_ENOUGH`, so that an evicted connection was open for at least as long before. The bound
of `Connections` depends on that."""


class Timer(Protocol):
    """A scheduled call."""

    def active(self) -> bool:
        """True until the call was made or cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock(Protocol):
    """The part of a reactor's clock that is used."""

    def callLater(self, delay: float, call: Callable[[], object]) -> Timer:
        """Call `call` once, `delay` seconds from now."""

    def seconds(self) -> float:
        """Return the time in seconds since an arbitrary moment."""


class OpenSession(Protocol):
    """The part of a `server.session.Session` that is used here."""

    @property
    def had_request(self) -> bool:
        """True once any part of a request was received."""

    @property
    def idle(self) -> bool:
        """True while no request is open."""

    def go_away(self, reason: str) -> None:
        """Accept no new requests, and close once all open requests are answered."""


class OpenTimeouts(Protocol):
    """The part of a `server.idle.IdleTimeouts` that is used here."""

    @property
    def closing(self) -> bool:
        """True once the connection accepts no more input and begins no more work."""

    @property
    def sent_all(self) -> float | None:
        """The time when the last byte was sent and this direction was closed; None before."""

    def idle_since(self, now: float) -> float | None:
        """Return the time since which the connection is idle; None while it is in use."""

    def must_leave(self, now: float) -> None:
        """Record that the peer was told to disconnect."""


class OpenConnection(Protocol):
    """The part of a `server.shell.SessionProtocol` that is used here."""

    @property
    def refusal(self) -> CodedError | None:
        """The error with which the connection is refused because too many are open; None if the connection is
        accepted."""

    @property
    def peer(self) -> str:
        """The name of the client in the log."""

    @property
    def address(self) -> str:
        """The address under which the connection is counted."""

    @property
    def session(self) -> OpenSession:
        """The session of the connection."""

    @property
    def timeouts(self) -> OpenTimeouts:
        """The timeouts of the connection."""

    def lose(self) -> None:
        """Close the connection once everything is sent."""


class _RareLines:
    """Logs at most one line every `REPORT_EVERY` seconds, so that a flood of connections does not flood the log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: float | None = None
        self._unsaid = 0

    def say(self, line: str) -> None:
        """Log a line. If the last one is too recent, only count the line, and report the count with the next one."""
        now = self._clock.seconds()
        if self._said is not None and now - self._said < REPORT_EVERY:
            self._unsaid += 1
            return
        others = f" (and {self._unsaid} others since the last such line)" if self._unsaid else ""
        log.warning("%s%s", line, others)
        self._said, self._unsaid = now, 0


class Connections:
    """The open connections of one server process.

    At most twice `limits.connections` are open, and `MAX_REFUSED` more that are being refused. At most
    `limits.connections` of them are counted. The others were evicted in the last `drain_time` seconds. Each had been
    open for at least as long by then, so all of them were among the counted ones when these seconds began.
    """

    def __init__(self, site: Site, executor: Executor, clock: Clock, limits: Limits | None = None) -> None:
        self.site = site
        self.executor = executor
        self.clock = clock
        self.limits = limits or Limits()
        self.open: set[OpenConnection] = set()
        self._counted: set[OpenConnection] = set()
        """The connections that count for the limit: all that were neither refused nor told to disconnect."""
        self._none_before = 0.0
        """The time before which no connection can be evicted, because at the last search none had been idle for long
        enough."""
        self._refusal_lines = _RareLines(clock)
        self._eviction_lines = _RareLines(clock)
        self._empty: defer.Deferred[None] | None = None
        self._parting = False

    def admit(self, peer: str, address: str) -> CodedError | None:
        """Return the error with which a new connection is refused. Return None if the connection is accepted, perhaps
        after another was closed for it."""
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
        """Evict the connection that was idle the longest. Return False if no connection can be evicted. Connections
        that only have to close come first, then those that never sent a request.

        The evicted connection no longer counts, though it may stay open for `drain_time`. A full server searches for
        every new connection, and a search takes a while. After a search without result, the server refuses new
        connections without a search until one can have been idle for long enough.
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
        """Let a connection accept no new requests and close, because a new connection needs its place.

        A peer that sent a request has `drain_time` to read the rest of its answers and to close. Other peers get no
        time.
        """
        self._counted.discard(one)
        one.timeouts.must_leave(self.clock.seconds())
        if not one.timeouts.closing:
            one.session.go_away(reason)
        if one.timeouts.sent_all is not None or not one.session.had_request:
            one.lose()

    @property
    def drain_time(self) -> float:
        """The most seconds that an evicted connection stays open."""
        return min(DRAIN_TIME, self.limits.idle)

    def release(self, one: OpenConnection) -> None:
        """Stop counting a connection whose peer was told to disconnect, because it sent no request for too long. The
        peer has `drain_time` seconds to close."""
        self._counted.discard(one)

    @property
    def may_refuse(self) -> bool:
        """True if another connection can be refused with an error; otherwise it is closed without an answer."""
        return sum(each.refusal is not None for each in self.open) < MAX_REFUSED

    def opened(self, one: OpenConnection) -> None:
        """Add a connection that was opened."""
        self.open.add(one)
        if one.refusal is None:
            self._counted.add(one)

    def closed(self, one: OpenConnection) -> None:
        """Remove a connection that is closed."""
        self.open.discard(one)
        self._counted.discard(one)

    def changed(self, *, force: bool = False) -> None:
        """Complete a waiting `stop` if all connections are closed. Called when one is closed or has sent everything.
        `force`: do not wait for the others."""
        if self._empty is None:
            return
        if force or not self.open:
            empty, self._empty = self._empty, None
            empty.callback(None)
        elif not self._parting and all(each.timeouts.sent_all is not None for each in self.open):
            self._parting = True
            self.clock.callLater(PARTING, lambda: self.changed(force=True))

    def stop(self, seconds: float) -> defer.Deferred[None]:
        """Stop the server. The result fires when every connection has completed its requests, or after `seconds`."""
        done = self.go_away("the server is stopping")
        if not done.called:
            self.clock.callLater(seconds, self.cut)
        return done

    @property
    def busy(self) -> int:
        """The number of connections on which a request is open."""
        return sum(not each.session.idle for each in self.open)

    def cut(self) -> None:
        """End a `stop` that is waiting for connections."""
        if self._empty is not None:
            if self.busy:
                log.warning("stopping: open requests are cut off (connections: %d)", self.busy)
            self.changed(force=True)

    def go_away(self, reason: str) -> defer.Deferred[None]:
        """Let every connection finish its requests and close. The result fires when none is left."""
        empty = self._empty = defer.Deferred[None]()
        self._parting = False
        for each in list(self.open):
            each.session.go_away(reason)
        self.changed()
        return empty
