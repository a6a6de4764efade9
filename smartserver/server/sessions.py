"""The open connections of one server process: how many there may be, and how they end when it stops."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from twisted.internet import defer

from smartserver.errors import ServerBusy
from smartserver.server.executor import Executor
from smartserver.server.limits import MAX_REFUSED, Limits
from smartserver.server.session import Session
from smartserver.server.site import Site
from transports.errors import CodedError

log = logging.getLogger("smartserver")

PARTING = 2.0
"""Seconds a server that stops waits for peers whose requests are answered to close too; some hold a connection open for
a request to come."""

REPORT_EVERY = 60.0
"""Seconds between two lines in the log about connections that were refused."""


class Timer(Protocol):
    """A call to come."""

    def active(self) -> bool:
        """Whether it is still to come."""

    def cancel(self) -> None:
        """Forget it."""


class Clock(Protocol):
    """What is used of a reactor's clock."""

    def callLater(self, delay: float, call: Callable[[], object]) -> Timer:
        """Call this once, `delay` seconds from now."""

    def seconds(self) -> float:
        """The time, in seconds since some moment."""


class Open(Protocol):
    """What is used of a connection (`server.shell.SessionProtocol`)."""

    refusal: CodedError | None
    address: str
    session: Session | None

    @property
    def draining(self) -> bool:
        """Whether everything was said, and only the peer has not closed yet."""


class Sessions:
    """The open connections of one server process."""

    def __init__(self, site: Site, executor: Executor, clock: Clock, limits: Limits | None = None) -> None:
        self.site = site
        self.executor = executor
        self.clock = clock
        self.limits = limits or Limits()
        self.open: set[Open] = set()
        self._of_address: Counter[str] = Counter()
        self._refused: set[Open] = set()
        self._unreported = 0
        self._reported: float | None = None
        self._empty: defer.Deferred[None] | None = None
        self._parting = False

    def admit(self, peer: str, address: str) -> CodedError | None:
        """Why another connection is one too many; None where there is room."""
        if len(self.open) - len(self._refused) >= self.limits.connections:
            wrong = ServerBusy("connections", self.limits.connections)
        elif address and self._of_address[address] >= self.limits.of_address:
            wrong = ServerBusy("connections from one address", self.limits.of_address)
        else:
            return None
        now = self.clock.seconds()
        if self._reported is None or now - self._reported >= REPORT_EVERY:
            others = f" (and {self._unreported} others since the last such line)" if self._unreported else ""
            log.warning("%s: refused: %s%s", peer, wrong, others)
            self._reported, self._unreported = now, 0
        else:
            self._unreported += 1
        return wrong

    @property
    def may_refuse(self) -> bool:
        """Whether another connection that is one too many can be told so."""
        return len(self._refused) < MAX_REFUSED

    def opened(self, one: Open) -> None:
        """A connection is there."""
        self.open.add(one)
        if one.refusal is not None:
            self._refused.add(one)
        elif one.address:
            self._of_address[one.address] += 1

    def closed(self, one: Open) -> None:
        """A connection is gone."""
        if one not in self.open:
            return
        self.open.discard(one)
        if one in self._refused:
            self._refused.discard(one)
        elif one.address:
            self._of_address[one.address] -= 1
            if not self._of_address[one.address]:
                del self._of_address[one.address]

    def changed(self, *, force: bool = False) -> None:
        """A connection closed, or has nothing left to say; with `force`, wait for the others no longer."""
        if self._empty is None:
            return
        if force or not self.open:
            empty, self._empty = self._empty, None
            empty.callback(None)
        elif not self._parting and all(each.draining for each in self.open):
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
        return sum(each.session is not None and not each.session.idle for each in self.open)

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
            if each.session is not None:
                each.session.go_away(reason)
        self.changed()
        return empty
