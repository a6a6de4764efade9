"""The Twisted shell of a session, for every medium that is a Twisted transport. It moves bytes; what is to be
done when none move is `patience`'s to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol as Interface
from typing import cast

from twisted.internet import interfaces, protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from smartserver.server.access import Access
from smartserver.server.outbox import Outbox
from smartserver.server.patience import Action, Patience
from smartserver.server.session import Session
from smartserver.server.sessions import Sessions, Timer
from smartserver.server.untaken import Writer, untaken
from smartserver.wire.limits import DRAIN_BYTES
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


@implementer(interfaces.IHalfCloseableProtocol, interfaces.IPushProducer)
class SessionProtocol(protocol.Protocol):
    """One connection: its session, and this object as the session's shell."""

    session: Session | None = None
    when_lost: Callable[[], None] | None = None
    """Called when the connection is gone."""
    _timer: Timer | None = None

    def __init__(
        self, server: Sessions, access: Access, peer: str, address: str = "", refusal: CodedError | None = None
    ) -> None:
        """`address`: whose connections are counted together; empty: nobody's. `refusal`: why it is one too many."""
        self._server, self._access = server, access
        self.peer, self.address, self.refusal = peer, address, refusal
        self.patience = Patience(server.limits.idle, server.farewell, refused=refusal is not None)
        self.outbox = Outbox()
        self._drain = DRAIN_BYTES

    @property
    def draining(self) -> bool:
        """Whether everything was said, and only the peer has not closed yet."""
        return self.patience.sent_all is not None

    @property
    def asked(self) -> bool:
        """Whether a request ever came."""
        return self.session is not None and self.session.asked

    @property
    def idle_since(self) -> float | None:
        """Since when it is used for nothing: no request open or on its way, or everything said; None while it is."""
        waits = bool(self.outbox) and self.asked
        at_rest = not waits and self.session is not None and self.session.at_rest
        if not (self.draining if self.patience.closing else at_rest):
            return None
        self._note_taken()
        return self.patience.idle_since

    def let_go(self, reason: str) -> None:
        """Take no new requests, and close: an idle connection, whose place somebody else needs.

        Who asked has `Sessions.farewell` to take what he has not yet, and to close; to the others nothing is owed.
        """
        self.patience.must_leave(self._now)
        if not self.patience.closing and self.session is not None:
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
        self.patience.begins(self._now)
        if self.refusal is not None:
            self.session.refuse(self.refusal)
        self._watch()

    def dataReceived(self, data: bytes) -> None:
        """Bytes came."""
        session = self.session
        of_request = session is not None and session.receiving and not self.patience.closing
        self.patience.hears(self._now, of_request=of_request)
        if self.patience.closing:
            self._drain -= len(data)
            if self._drain < 0:
                self._end_drain()
        elif session is not None:
            session.data_received(data)

    def readConnectionLost(self) -> None:
        """The peer sends no more."""
        self.patience.read_ended = True
        if self.patience.closing and not self.outbox:
            self.lose()
        elif self.session is not None:
            self.session.eof_received()
            self._watch()

    def writeConnectionLost(self) -> None:
        """Everything was sent."""
        self.patience.sent_all = self._now
        self._server.changed()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """The connection is gone."""
        self._server.closed(self)
        self._forget_timer()  # It would keep this object for up to a quarter of an hour.
        self.outbox.clear()
        if self.session is not None:
            self.session.connection_lost()
        self._server.changed()
        if self.when_lost is not None:
            self.when_lost()

    def pauseProducing(self) -> None:
        """Enough lies unsent."""
        self.outbox.full = True

    def resumeProducing(self) -> None:
        """Send on."""
        self.outbox.full = False
        self.patience.is_taken(self._now, asked=self.asked)
        self._push()
        if self.outbox or self.session is None:
            return
        if self.patience.closing:
            self._end_writing()
        else:
            self.session.resume_writing()

    def stopProducing(self) -> None:
        """The connection is gone; `connectionLost` follows."""

    # -- from the session

    def write(self, data: bytes) -> None:
        """Send, in order."""
        session = self.session
        for_request = session is not None and not session.idle  # The last that is written of a request ends it.
        self.patience.speaks(self._now, for_request=for_request, full=self.outbox.full)
        self.outbox.add(data)
        self._push()
        if self.outbox and session is not None:
            session.pause_writing()

    def close(self) -> None:
        """Send the rest, say that nothing follows, and read on until the peer has seen it: no RST eats the answer.

        That has an end in bytes and, from when all is sent, in time; and so has the sending where nothing is taken.
        """
        self.patience.closing = True
        if not self.patience.read_ended:
            self._carrier.resumeProducing()
        if not self.outbox:
            self._end_writing()
        self._watch()

    def lose(self) -> None:
        """Close both directions once everything is sent; `connectionLost` follows."""
        self._carrier.loseConnection()

    def abort(self) -> None:
        """Close both directions at once; `connectionLost` follows."""
        self.patience.closing = True
        self._forget_timer()
        self._carrier.abortConnection()

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._carrier.pauseProducing()

    def resume_reading(self) -> None:
        """Read again."""
        self.patience.hears(self._now)  # What came meanwhile could not be heard.
        self._carrier.resumeProducing()

    def _push(self) -> None:
        if self.outbox:
            self.patience.hands_over(self.outbox.hand_over(self._carrier.write))

    def _end_writing(self) -> None:
        self._carrier.unregisterProducer()
        if self.patience.read_ended:
            self.lose()
        else:
            self._carrier.loseWriteConnection()

    def _end_drain(self) -> None:
        """The peer has had its chance to read what was said, and to close."""
        if self.draining:
            self.lose()
        else:
            self.abort()

    # -- time

    @property
    def _now(self) -> float:
        return self._server.clock.seconds()

    def _watch(self) -> None:
        """Do what `patience` says, and ask again before long."""
        self._forget_timer()
        session, patience = self.session, self.patience
        if session is None:
            return
        was_closing = patience.closing
        self._note_taken()
        action, why = patience.look(self._now, session, full=self.outbox.full)
        match action:
            case Action.END:
                self._end_drain()
                return
            case Action.ABORT:
                session.abort(why)
            case Action.DROP:
                session.drop(why)
            case Action.REFUSE_REST:
                session.discard_no_more(why)
            case Action.GO_AWAY:
                self._server.leaves(self)
                session.go_away(why)
            case Action.PING:
                session.ping()
            case Action.WAIT:
                pass
        if was_closing or not patience.closing:  # Else it is watched from where it began to close.
            self._timer = self._server.clock.callLater(patience.next_look(self._now), self._watch)

    def _note_taken(self) -> None:
        if self.patience.may_have_taken:
            writer = self._writer()
            left = 0 if writer is None else untaken(writer)
            self.patience.leaves_untaken(self._now, left, asked=self.asked)

    def _writer(self) -> Writer | None:
        """What sends, where there still is something that does."""
        return cast("Writer | None", self.transport)

    def _forget_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
