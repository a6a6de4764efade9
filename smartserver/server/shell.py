"""The shell of a session, for every medium that is a Twisted transport. The shell reads and writes bytes; `timeouts`
decides when to disconnect an idle peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import interfaces, protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from smartserver.meters import BYTES_RECEIVED, BYTES_SENT, CONNECTIONS, here
from smartserver.server.access import Admission
from smartserver.server.connections import Connections, Timer
from smartserver.server.idle import IdleTimeouts
from smartserver.server.outbox import Outbox, unacknowledged
from smartserver.server.session import Session
from transports.errors import CodedError


@implementer(interfaces.IHalfCloseableProtocol, interfaces.IPushProducer)
class SessionProtocol(protocol.Protocol):
    """One connection: the Twisted protocol that owns the session and is its shell."""

    when_lost: Callable[[], None] | None = None
    """A function that is called when the connection is closed."""
    _carrier: Any
    """The transport, once the connection is open. It is `Any` because Twisted's interfaces are unknown to a type
    checker."""
    _timer: Timer | None = None

    def __init__(
        self,
        connections: Connections,
        admission: Admission,
        peer: str,
        address: str = "",
        refusal: CodedError | None = None,
    ) -> None:
        """`address`: connections with the same address are counted together, unless it is empty. `refusal`: the error
        with which the connection is refused, if too many are open."""
        self._connections = connections
        self.peer, self.address, self.refusal = peer, address, refusal
        self.session = Session(connections.site, admission, self, connections.executor, peer, address)
        self.outbox = Outbox()
        self.timeouts = IdleTimeouts(
            self.session,
            self.outbox,
            lambda: unacknowledged(self._writer()),
            idle=connections.limits.idle,
            drain_time=connections.drain_time,
            refused=refusal is not None,
        )

    # -- from Twisted

    def connectionMade(self) -> None:
        """Begin the session on an open connection."""
        self._carrier = self.transport
        self._connections.opened(self)
        here.tally[CONNECTIONS] += 1
        self._carrier.registerProducer(self, True)
        self.timeouts.begin(self._now)
        self.refuse_if_full()
        self._watch()

    def refuse_if_full(self) -> None:
        """Refuse the connection if there are too many."""
        if self.refusal is not None:
            self.session.refuse(self.refusal)

    def dataReceived(self, data: bytes) -> None:
        """Pass received bytes to the session, unless the connection is closing."""
        here.tally[BYTES_RECEIVED] += len(data)
        self.timeouts.note_received(self._now, len(data))
        if self.timeouts.has_drained:
            self._end_drain()
        elif not self.timeouts.closing:
            self.session.data_received(data)

    def readConnectionLost(self) -> None:
        """Pass the end of the peer's bytes to the session."""
        self.timeouts.read_ended = True
        if self.timeouts.closing and not self.outbox:
            self.lose()
        else:
            self.session.eof_received()
            self._watch()

    def writeConnectionLost(self) -> None:
        """Record that everything was sent."""
        self.timeouts.sent_all = self._now
        self._connections.changed()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Abandon the session, and cancel the timer, because the connection is closed."""
        self._connections.closed(self)
        self._forget_timer()  # The timer would keep this object alive for up to a quarter of an hour.
        self.outbox.clear()
        self.session.connection_lost()
        self._connections.changed()
        if self.when_lost is not None:
            self.when_lost()

    def pauseProducing(self) -> None:
        """Stop writing, because enough bytes are unsent."""
        self.outbox.full = True

    def resumeProducing(self) -> None:
        """Resume writing, because the carrier accepts more bytes."""
        self.outbox.full = False
        self.timeouts.note_taken(self._now)
        self._push()
        if self.outbox:
            return
        if self.timeouts.closing:
            self._end_writing()
        else:
            self.session.resume_writing()

    def stopProducing(self) -> None:
        """Do nothing: the connection is closed, and Twisted calls `connectionLost` next."""

    # -- from the session

    def write(self, data: bytes) -> None:
        """Send bytes, in order."""
        here.tally[BYTES_SENT] += len(data)
        self.timeouts.note_written(self._now)
        self.outbox.add(data)
        self._push()
        if self.outbox:
            self.session.pause_writing()

    def close(self) -> None:
        """Send the rest, close this direction, and read on until the peer has closed too, so that no RST destroys the
        answer.

        Reading on is limited in bytes and, once everything is sent, in time. Sending is limited in time while the peer
        reads nothing.
        """
        self.timeouts.closing = True
        if not self.timeouts.read_ended:
            self._carrier.resumeProducing()
        if not self.outbox:
            self._end_writing()
        self._watch()

    def lose(self) -> None:
        """Close both directions once everything is sent; `connectionLost` follows."""
        self._carrier.loseConnection()

    def abort(self) -> None:
        """Close both directions at once; `connectionLost` follows."""
        self.timeouts.closing = True
        self._forget_timer()
        self._carrier.abortConnection()

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`."""
        self._carrier.pauseProducing()

    def resume_reading(self) -> None:
        """Resume reading from the connection."""
        self.timeouts.note_received(self._now)
        self._carrier.resumeProducing()

    def _push(self) -> None:
        self.timeouts.note_handed(self.outbox.hand_over(self._carrier.write))

    def _end_writing(self) -> None:
        self._carrier.unregisterProducer()
        if self.timeouts.read_ended:
            self.lose()
        else:
            self._carrier.loseWriteConnection()

    def _end_drain(self) -> None:
        """Close the connection, because the time for the peer to read and to close is over."""
        if self.timeouts.sent_all is None:
            self.abort()
        else:
            self.lose()

    # -- time

    @property
    def _now(self) -> float:
        return self._connections.clock.seconds()

    def _watch(self) -> None:
        """Apply the timeouts to the connection now, and schedule the next time."""
        self._forget_timer()
        was_closing = self.timeouts.closing
        if self.timeouts.look(self._now):
            self._end_drain()
            return
        if self.timeouts.leaving:
            self._connections.release(self)
        if was_closing or not self.timeouts.closing:  # Else `close` has started the timer.
            self._timer = self._connections.clock.callLater(self.timeouts.next_look(self._now), self._watch)

    def _writer(self) -> Any:
        """Return the object that sends bytes (`outbox.Writer`), or None after everything was sent."""
        return self._carrier

    def _forget_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
