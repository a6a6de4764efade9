"""The Twisted shell of a session, for every medium that is a Twisted transport. It moves bytes and decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol as Interface
from typing import cast

from twisted.internet import defer, interfaces, protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from smartserver.server.access import Access
from smartserver.server.executor import Executor
from smartserver.server.session import Session
from smartserver.server.site import Site
from smartserver.wire.limits import DRAIN_BYTES, DRAIN_SECONDS, KEEP_IDLE


class Timer(Interface):
    """A call to come."""

    def active(self) -> bool:
        """Whether it is still to come."""

    def cancel(self) -> None:
        """Forget it."""


PARTING = 2.0
"""Seconds a server that stops waits for peers whose requests are answered to close too; some hold a connection open for
a request to come."""


class Clock(Interface):
    """What is used of a reactor's clock."""

    def callLater(self, delay: float, call: Callable[[], object]) -> Timer:
        """Call this once, `delay` seconds from now."""

    def seconds(self) -> float:
        """The time, in seconds since some moment."""


class _Carrier(Interface):
    """What is used of a Twisted transport; TCP connections and StandardIO both have it."""

    def write(self, data: bytes) -> None: ...
    def loseConnection(self) -> None: ...
    def loseWriteConnection(self) -> None: ...
    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def registerProducer(self, producer: object, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...


@implementer(interfaces.IHalfCloseableProtocol, interfaces.IPushProducer)
class SessionProtocol(protocol.Protocol):
    """One connection: its session, and this object as the session's shell."""

    def __init__(self, server: Sessions, access: Access, peer: str) -> None:
        self._server = server
        self._peer = peer
        self._access = access
        self._draining: int | None = None
        self._read_ended = False
        self._heard = 0.0
        self._timer: Timer | None = None
        self.session: Session | None = None
        self.when_lost: Callable[[], None] | None = None
        """Called when the connection is gone."""

    @property
    def draining(self) -> bool:
        """Whether everything was said, and only the peer has not closed yet."""
        return self._draining is not None

    # -- from Twisted

    def connectionMade(self) -> None:
        """The connection is open."""
        self._carrier = cast("_Carrier", self.transport)
        self.session = Session(self._server.site, self._access, self, self._server.executor, self._peer)
        self._server.open.add(self)
        self._carrier.registerProducer(self, True)
        self._heard = self._server.clock.seconds()
        self._watch()

    def dataReceived(self, data: bytes) -> None:
        """Bytes came."""
        self._heard = self._server.clock.seconds()
        if self._draining is not None:
            self._draining -= len(data)
            if self._draining < 0:
                self.lose()
        elif self.session is not None:
            self.session.data_received(data)

    def readConnectionLost(self) -> None:
        """The peer sends no more."""
        self._read_ended = True
        if self._draining is not None:
            self.lose()
        elif self.session is not None:
            self.session.eof_received()

    def writeConnectionLost(self) -> None:
        """Everything was sent."""

    def connectionLost(self, reason: Failure | None = None) -> None:
        """The connection is gone."""
        self._server.open.discard(self)
        self._forget_timer()  # It would keep this object for up to a quarter of an hour.
        if self.session is not None:
            self.session.connection_lost()
        self._server.changed()
        if self.when_lost is not None:
            self.when_lost()

    def pauseProducing(self) -> None:
        """Enough lies unsent."""
        if self.session is not None:
            self.session.pause_writing()

    def resumeProducing(self) -> None:
        """Send on."""
        if self.session is not None:
            self.session.resume_writing()

    def stopProducing(self) -> None:
        """The connection is gone; `connectionLost` follows."""

    # -- from the session

    def write(self, data: bytes) -> None:
        """Send, in order."""
        self._heard = self._server.clock.seconds()  # An answer ends a silence as well as a request does.
        self._carrier.write(data)

    def close(self) -> None:
        """Send the rest, say that nothing follows, and read on until the peer has seen it: no RST eats the answer."""
        self._draining = DRAIN_BYTES
        self._forget_timer()
        self._carrier.unregisterProducer()
        if self._read_ended:
            self.lose()
            return
        self._carrier.resumeProducing()
        self._carrier.loseWriteConnection()
        self._server.changed()
        self._timer = self._server.clock.callLater(DRAIN_SECONDS, self.lose)

    def lose(self) -> None:
        """Close both directions once everything is sent; `connectionLost` follows."""
        self._carrier.loseConnection()

    def _watch(self) -> None:
        """Close a connection that has been without a request for long; nothing else has a limit on its time."""
        if self.session is None:
            return
        left = self._heard + KEEP_IDLE - self._server.clock.seconds()
        if left <= 0 and self.session.idle:
            self.session.go_away(f"no request for {KEEP_IDLE:.0f} s")
        else:
            self._timer = self._server.clock.callLater(max(left, KEEP_IDLE / 4), self._watch)

    def _forget_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._carrier.pauseProducing()

    def resume_reading(self) -> None:
        """Read again."""
        self._carrier.resumeProducing()


class Sessions:
    """The open connections of one server process."""

    def __init__(self, site: Site, executor: Executor, clock: Clock) -> None:
        self.site = site
        self.executor = executor
        self.clock = clock
        self.open: set[SessionProtocol] = set()
        self._empty: defer.Deferred[None] | None = None
        self._parting = False

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

    def stop_within(self, seconds: float) -> Callable[[], defer.Deferred[None]]:
        """What to call to stop: fires when every connection has finished what it did, or after `seconds`."""

        def stop() -> defer.Deferred[None]:
            done = self.go_away("the server is stopping")
            if not done.called:
                self.clock.callLater(seconds, lambda: None if done.called else self.changed(force=True))
            return done

        return stop

    def go_away(self, reason: str) -> defer.Deferred[None]:
        """Let every connection finish what it does and close; fires when none is left."""
        empty = self._empty = defer.Deferred[None]()
        self._parting = False
        for each in list(self.open):
            if each.session is not None:
                each.session.go_away(reason)
        self.changed()
        return empty
