"""The Twisted shell of a session, for every medium that is a Twisted transport. It moves bytes and decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol as Interface
from typing import cast

from twisted.internet import interfaces, protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from smartserver.server.access import Access
from smartserver.server.session import Session
from smartserver.server.sessions import Sessions, Timer
from smartserver.server.untaken import Writer, untaken
from smartserver.wire.limits import DRAIN_BYTES, DRAIN_SECONDS, KEEP_IDLE, KIB, PING_INTERVAL
from transports.errors import CodedError


class _Carrier(Interface):
    """What is used of a Twisted transport; TCP connections and StandardIO both have it."""

    def write(self, data: bytes) -> None: ...
    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def loseWriteConnection(self) -> None: ...
    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def registerProducer(self, producer: object, streaming: bool) -> None: ...
    def unregisterProducer(self) -> None: ...


SLICE = 128 * KIB
"""Bytes handed to the carrier at a time, which Twisted sends in one go: when it asks for more, the peer takes bytes."""

PROBE_INTERVAL = 1.0
"""Seconds between two PINGs to a peer that sends no more and whose answer is not ready. A peer that is gone looks
like one that waits, until the system refuses what is written to it: the second PING ends the work for it."""

TICKS = 4
"""How often the time a peer is given is looked at before it is over."""


@implementer(interfaces.IHalfCloseableProtocol, interfaces.IPushProducer)
class SessionProtocol(protocol.Protocol):
    """One connection: its session, and this object as the session's shell.

    Time is looked at for idleness alone, never for a total, and only where the peer is the one to act: it owes the rest
    of a request, it takes nothing of its answers, it has not closed after all was said, or it holds a connection for a
    request to come. While the server works for it, it may be silent for as long as that takes.
    """

    def __init__(
        self, server: Sessions, access: Access, peer: str, address: str = "", refusal: CodedError | None = None
    ) -> None:
        self._server = server
        self.peer = peer
        self._access = access
        self.refusal = refusal
        """Why this connection is one too many."""
        self.address = address
        """Whose connections are counted together; empty: nobody's."""
        self._unsent: deque[bytes | memoryview] = deque()
        self._full = False
        """The carrier has enough to send."""
        self._read_ended = False
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
        """The refused request whose upload still comes, and since when it is known."""
        self.closing = False
        """Whether nothing more is taken or begun."""
        self._drain = DRAIN_BYTES
        self._sent_all: float | None = None
        """When the last byte was sent and this direction closed."""
        self._leave_by: float | None = None
        """When one that was let go is closed, whatever its peer does."""
        self._timer: Timer | None = None
        self.session: Session | None = None
        self.when_lost: Callable[[], None] | None = None
        """Called when the connection is gone."""

    @property
    def draining(self) -> bool:
        """Whether everything was said, and only the peer has not closed yet."""
        return self._sent_all is not None

    @property
    def asked(self) -> bool:
        """Whether a request ever came."""
        return self.session is not None and self.session.asked

    @property
    def idle_since(self) -> float | None:
        """Since when it is used for nothing: no request open or on its way, or everything said; None while it is.

        Counted from its last request and the last that was taken of an answer. Who never asked anything is idle from
        the beginning, whatever else he sends and takes.
        """
        waits = bool(self._unsent) and self.asked
        idle = self.draining if self.closing else not waits and self.session is not None and self.session.at_rest
        if not idle:
            return None
        self._note_taken(self._server.clock.seconds())
        return max(self._used, self._sent_all or self._used)

    def let_go(self, reason: str) -> None:
        """Take no new requests, and close: an idle connection, whose place somebody else needs.

        Who asked has `Sessions.farewell` to take what he has not yet, and to close; to the others nothing is owed.
        """
        self._leave_by = self._server.clock.seconds() + self._server.farewell
        if not self.closing and self.session is not None:
            self.session.go_away(reason)
        if self.draining or not self.asked:
            self.lose()

    # -- from Twisted

    def connectionMade(self) -> None:
        """The connection is open."""
        self._carrier = cast("_Carrier", self.transport)
        self.session = Session(self._server.site, self._access, self, self._server.executor, self.peer, self.address)
        self._server.opened(self)
        self._carrier.registerProducer(self, True)
        self._heard = self._moved = self._spoke = self._used = self._server.clock.seconds()
        if self.refusal is not None:
            self.session.refuse(self.refusal)
        self._watch()

    def dataReceived(self, data: bytes) -> None:
        """Bytes came."""
        self._heard = self._server.clock.seconds()
        if self.closing:
            self._drain -= len(data)
            if self._drain < 0:
                self._end_drain()
        elif self.session is not None:
            if self.session.receiving:
                self._used = self._heard
            self.session.data_received(data)

    def readConnectionLost(self) -> None:
        """The peer sends no more."""
        self._read_ended = True
        if self.closing and not self._unsent:
            self.lose()
        elif self.session is not None:
            self.session.eof_received()
            self._watch()

    def writeConnectionLost(self) -> None:
        """Everything was sent."""
        self._sent_all = self._server.clock.seconds()
        self._server.changed()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """The connection is gone."""
        self._server.closed(self)
        self._forget_timer()  # It would keep this object for up to a quarter of an hour.
        self._unsent.clear()
        if self.session is not None:
            self.session.connection_lost()
        self._server.changed()
        if self.when_lost is not None:
            self.when_lost()

    def pauseProducing(self) -> None:
        """Enough lies unsent."""
        self._full = True

    def resumeProducing(self) -> None:
        """Send on."""
        self._full = False
        self._was_taken(self._server.clock.seconds())
        self._push()
        if self._unsent or self.session is None:
            return
        if self.closing:
            self._end_writing()
        else:
            self.session.resume_writing()

    def stopProducing(self) -> None:
        """The connection is gone; `connectionLost` follows."""

    # -- from the session

    def write(self, data: bytes) -> None:
        """Send, in order."""
        self._spoke = self._server.clock.seconds()
        if self.session is not None and not self.session.idle:
            self._used = self._spoke  # The last that is written of a request ends it.
        if not self._full:
            self._moved = self._spoke
        self._unsent.append(data)
        self._push()
        if self._unsent and self.session is not None:
            self.session.pause_writing()

    def _push(self) -> None:
        while self._unsent and not self._full:
            first = self._unsent.popleft()
            if len(first) > SLICE:
                view = memoryview(first)
                self._unsent.appendleft(view[SLICE:])
                first = view[:SLICE]
            self._handed += len(first)
            self._carrier.write(bytes(first))

    def close(self) -> None:
        """Send the rest, say that nothing follows, and read on until the peer has seen it: no RST eats the answer.

        That has an end in bytes and, from when all is sent, in time; and so has the sending where nothing is taken.
        """
        self.closing = True
        if not self._read_ended:
            self._carrier.resumeProducing()
        if not self._unsent:
            self._end_writing()
        self._watch()

    def _end_writing(self) -> None:
        self._carrier.unregisterProducer()
        if self._read_ended:
            self.lose()
        else:
            self._carrier.loseWriteConnection()

    def _end_drain(self) -> None:
        """The peer has had its chance to read what was said, and to close."""
        if self._sent_all is None:
            self.abort()
        else:
            self.lose()

    def lose(self) -> None:
        """Close both directions once everything is sent; `connectionLost` follows."""
        self._carrier.loseConnection()

    def abort(self) -> None:
        """Close both directions at once; `connectionLost` follows."""
        self.closing = True
        self._forget_timer()
        self._carrier.abortConnection()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._carrier.pauseProducing()

    def resume_reading(self) -> None:
        """Read again."""
        self._heard = self._server.clock.seconds()  # What came meanwhile could not be heard.
        self._carrier.resumeProducing()

    # -- time

    def _watch(self) -> None:
        """Look at the clock now, and again before long."""
        self._forget_timer()
        if self.session is None:
            return
        now = self._server.clock.seconds()
        if self.closing:
            self._note_taken(now)
            # What was asked is sent on for as long as the peer takes it, unless somebody else needs the place. That
            # all of it is sent says only that the kernel has it: what the peer still takes from there counts too.
            since, most = self._moved, self._server.limits.idle
            if self._sent_all is not None:
                since, most = max(self._moved, self._sent_all), DRAIN_SECONDS
            if now - since >= most or (self._leave_by is not None and now >= self._leave_by):
                self._end_drain()
                return
        else:
            self._look(self.session, now)
            if self.closing:
                return  # Which is watched where it began.
        often = min(self._ping_interval, self._server.limits.idle / TICKS)
        if self._leave_by is not None:
            often = min(often, self._leave_by - now)
        self._timer = self._server.clock.callLater(often, self._watch)

    def _writer(self) -> Writer | None:
        """What sends, where there still is something that does."""
        return cast("Writer | None", self.transport)

    def _note_taken(self, now: float) -> None:
        """Note whether the peer took anything since the last look, be it one byte: no least rate is asked of it.

        Of what was handed over since then it may have taken all long ago; where some is left, it is taking it.
        """
        if not self._untaken and not self._handed:
            return
        writer = self._writer()
        left = 0 if writer is None else untaken(writer)
        if left < self._untaken or 0 < left < self._untaken + self._handed:
            self._was_taken(now)
        self._untaken, self._handed = left, 0

    def _was_taken(self, now: float) -> None:
        self._heard = self._moved = now
        if self.asked:
            self._used = now

    def _look(self, session: Session, now: float) -> None:
        self._note_taken(now)
        silent, idle = now - self._heard, self._server.limits.idle
        if self._full and now - self._moved >= idle:
            session.abort(f"it took nothing of its answer for {now - self._moved:.0f} s")
        elif session.awaiting and silent >= idle:
            session.drop(f"nothing of the rest of a request came for {silent:.0f} s")
        elif session.discarding:
            if session.discarding == self._discarding[0] and now - self._discarding[1] >= DRAIN_SECONDS:
                session.discard_no_more(f"it still came {now - self._discarding[1]:.0f} s after that")
        elif session.idle and min(silent, now - self._spoke) >= (keep := self._keep(session)):
            self._server.leaves(self)
            self._leave_by = now + self._server.farewell
            session.go_away(f"no request for {keep:.0f} s")
        elif session.pinging and min(silent, now - self._pinged) >= self._ping_interval:
            self._pinged = now
            session.ping()
        if session.discarding != self._discarding[0]:
            self._discarding = (session.discarding, now)

    @property
    def _ping_interval(self) -> float:
        return PROBE_INTERVAL if self._read_ended else PING_INTERVAL

    def _keep(self, session: Session) -> float:
        """Seconds a connection is kept without a request: who has never made one holds none for later."""
        if self.refusal is not None:
            return DRAIN_SECONDS
        return KEEP_IDLE if session.asked else min(KEEP_IDLE, self._server.limits.idle)

    def _forget_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
