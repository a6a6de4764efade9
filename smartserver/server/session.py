"""The session: the server's side of one connection, without sockets, clocks or threads. It acts on the events that
`wire.Connection` decodes.

A shell (TCP, stdio, simulator) passes received bytes to the session and sends the session's bytes. Work on the store
runs in the executor.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from smartserver.server.access import Admission
from smartserver.server.executor import Executor
from smartserver.server.fair import Tenant
from smartserver.server.header import fault
from smartserver.server.open_files import MAX_OF_CONNECTION, OpenFiles
from smartserver.server.request import ServedRequest
from smartserver.server.site import Site
from smartserver.wire import events
from smartserver.wire.connection import Connection, Role
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import DRAIN_BYTES, INITIAL_WINDOW, MAX_MESSAGE, MAX_REASON, UNREAD_BYTES
from smartserver.wire.messages import Failure, encode
from transports.errors import CodedError

log = logging.getLogger("smartserver")

BACKLOG_HIGH = 4 << 20
"""The most unchecked bytes of requests and uploads. Above it, reading stops, so that a fast link cannot fill the
memory."""

BACKLOG_LOW = 1 << 20
"""Unchecked bytes below which reading is resumed."""

CANCELLED_HIGH = 32
"""The number of answered requests with running work above which reading stops: a quarter of `MAX_OPEN_REQUESTS`. The
work of a cancelled request runs until it checks for the cancellation."""

VERSIONS = (1,)
"""The versions of the protocol that this release speaks."""


class Shell(Protocol):
    """Carries the bytes of a session."""

    def write(self, data: bytes) -> None:
        """Send bytes in order, without waiting."""

    def close(self) -> None:
        """Close once everything that was written has been sent. Unread input must not cause a reset that destroys
        it."""

    def abort(self) -> None:
        """Close at once. Bytes that were written and not sent are lost."""

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`."""

    def resume_reading(self) -> None:
        """Resume reading."""


class Session:
    """The server's side of one connection."""

    def __init__(
        self, site: Site, admission: Admission, shell: Shell, executor: Executor, peer: str = "", address: str = ""
    ) -> None:
        """`address`: connections with the same address share the threads. With an empty address, this connection shares
        them with no other."""
        self.site = site
        self.admission = admission
        self.executor = executor
        self.client = Tenant(address)
        self.peer = peer or "a client"
        self.via = ""
        """The protocol of the client, such as `https`, for the logs; empty for our own protocol."""
        self.is_local = False
        """True if the client is on this machine."""
        self.link: Callable[[], Mapping[str, int]] = dict
        """Returns the kernel's counts of the connection, by the names in `tcp_state`."""
        self.open_files = OpenFiles(MAX_OF_CONNECTION, site.open_files)
        self._shell = shell
        self._connection = Connection(Role.SERVER)
        self._requests: dict[int, ServedRequest] = {}
        self._working: set[ServedRequest] = set()
        """Requests that are answered or cancelled, but whose tasks still run or wait."""
        self._bodies: deque[ServedRequest] = deque()
        self._backlog = 0
        self._paused = False
        self._writable = True
        self._held = b""
        """Encoded events that are held back, to be written together with the next one."""
        self._unread = 0
        """Bytes of answers, without their bodies, that were written since the peer last had received everything."""
        self._longest = 0
        """Bytes of the longest such answer."""
        self._owed: dict[int, int] = {}
        """The requests, including refused ones, of which the client must still send the rest: the bytes of their
        messages so far, by id."""
        self._discarded = 0
        """Bytes of a refused upload that were received since its refusal."""
        self._refusal: CodedError | None = None
        self.had_request = False
        """True once any part of a request was received."""
        self._leaving = False
        """True once no new request is accepted or can arrive. The session closes after the last answer."""
        self._closing = False

    # -- from the shell

    def data_received(self, data: bytes) -> None:
        """Process bytes from the peer."""
        self._receive(lambda: self._connection.receive_data(data))

    def eof_received(self) -> None:
        """Process the end of the peer's bytes."""
        self._receive(self._connection.receive_eof)

    def _receive(self, receive: Callable[[], None]) -> None:
        """Call `receive`, and handle the events that it causes."""
        try:
            if not self._closing:
                receive()
            while not self._closing and (event := self._connection.next_event()) is not None:
                self._handle(event)
        except RemoteProtocolError as error:
            log.info("%s: %s", self.peer, error)
            self._abandon()
            self._close()

    def connection_lost(self) -> None:
        """Abandon the open requests. A running commit stops only if its calls are run again. Otherwise its change is
        made, and a repetition of the request gets the answer."""
        self._closing = True
        self._abandon()

    def pause_writing(self) -> None:
        """Stop sending bodies, because the shell has enough unsent bytes."""
        self._writable = False

    def resume_writing(self) -> None:
        """Resume writing, because the peer received everything that was written."""
        self._writable = True
        self._unread = self._longest = 0
        if self._bodies:
            self._bodies[0].pump()

    @property
    def idle(self) -> bool:
        """True if no request is open."""
        return not self._requests

    @property
    def receiving(self) -> bool:
        """True if the client must still send the rest of a request, even of a refused one."""
        return bool(self._owed)

    @property
    def at_rest(self) -> bool:
        """True if no request is open or partly received. A frame that began may be a request."""
        return self.idle and not self.receiving and not self._connection.part_way

    @property
    def awaiting(self) -> bool:
        """True if the client must send the rest of a request or of a frame, and this side reads."""
        return (self.receiving or self._connection.part_way) and not self._paused

    @property
    def pinging(self) -> bool:
        """True if this side must send PINGs: a request is not received completely, nothing is read, or a request is
        unanswered while no new request is accepted.

        A client treats a silent server as disconnected, and this side does not see the client's PINGs while nothing is
        read. If a client sends no more, only a write to the connection shows whether the client still waits for its
        answer.
        """
        return self.receiving or self._paused or (self._leaving and not self.idle)

    @property
    def discarding(self) -> int:
        """The id of a refused request whose upload is still being received; 0 if no upload is."""
        return next((each for each in self._owed if each not in self._requests), 0)

    def refuse(self, why: CodedError) -> None:
        """Refuse a connection above the limit: send a GOAWAY, and refuse its first request.

        A client with a request gets an ERROR, so that it knows that nothing was done.
        """
        self._refusal = why
        self.send(events.GoAway(str(why).encode()[:MAX_REASON]))

    def go_away(self, reason: str) -> None:
        """Accept no new requests, finish those that are open, then close."""
        self.send(events.GoAway(reason.encode()[:MAX_REASON]))
        self._leave()

    def ping(self) -> None:
        """Send a PING, which also keeps routers from dropping the connection."""
        self.send(events.Ping())

    def drop(self, reason: str) -> None:
        """Drop the connection and its open requests. Send the reason, in case the peer still reads."""
        log.warning("%s: dropped: %s", self.peer, reason)
        self.send(events.GoAway(reason.encode()[:MAX_REASON]))
        self._abandon()
        self._close()

    def abort(self, reason: str) -> None:
        """Drop the connection without a message, because the peer reads none."""
        if not self._closing:
            log.warning("%s: dropped: %s", self.peer, reason)
        self._closing = True
        self._abandon()
        self._shell.abort()

    def discard_no_more(self, why: str) -> None:
        """Receive no more of a refused upload that the client still sends: complete the other requests, and close this
        side."""
        if not self._leaving:
            log.info("%s: still sends a refused upload: %s", self.peer, why)
            self.go_away(f"the upload was refused: {why}")

    # -- from requests

    def send(self, event: events.Event, more: bool = False) -> None:
        """Send one event unless the connection is closed. `more`: another event follows, so up to `INITIAL_WINDOW`
        bytes may be held back for it.

        Neither side may stop reading because it cannot write: two such sides with bodies for each other would deadlock.
        So this side reads on, even if the peer takes no answers. Bodies wait until the peer takes more. Other answers
        have a bound, above which the connection is dropped. All clients must read while they write and wait. Such a
        client meets no deadlock, and reaches the bound only if it requests megabytes of answers at once.
        """
        if self._closing:
            return
        if not self._writable and isinstance(event, events.Progress):
            return  # It would be out of date when it is read.
        encoded = self._connection.send(event)
        if not self._writable:
            self._unread += len(encoded)
            self._longest = max(self._longest, len(encoded))
            if self._unread - self._longest > UNREAD_BYTES:
                self.abort(f"the client does not read its answers: more than {UNREAD_BYTES} bytes are unread")
                return
        self._held += encoded
        if not more or len(self._held) > INITIAL_WINDOW:
            held, self._held = self._held, b""
            self._shell.write(held)

    @property
    def writable(self) -> bool:
        """True if more of a body may be sent."""
        return self._writable and not self._closing

    def finished(self, request: ServedRequest) -> None:
        """Remove a request that has its final answer."""
        self._requests.pop(request.id, None)
        self._working.add(request)
        self._pace_reading()
        if request in self._bodies:
            sending = self._bodies[0] is request
            self._bodies.remove(request)
            if sending and self._bodies:
                self._bodies[0].start_body()
        if self._leaving and not self._requests:
            self._close()

    def ended(self, request: ServedRequest) -> None:
        """Forget a request of which no task runs or waits."""
        self._working.discard(request)
        self._pace_reading()

    def want_body(self, request: ServedRequest) -> None:
        """Queue an answer with a body. A connection sends one body at a time."""
        self._bodies.append(request)
        if self._bodies[0] is request:
            request.start_body()

    def backlog(self, change: int) -> None:
        """Add to the number of bytes that were received and not yet checked."""
        self._backlog += change
        self._pace_reading()

    def _pace_reading(self) -> None:
        """Stop reading while there is too much work, and resume reading once it is done.

        Cancelled requests count until their work has ended. Otherwise a client could cause any amount of work by
        cancelling and sending again. Their work does not wait for bytes that were not read yet.
        """
        cancelled = len(self._working)
        if self._closing:
            return
        if not self._paused and (self._backlog > BACKLOG_HIGH or cancelled > CANCELLED_HIGH):
            self._paused = True
            self._shell.pause_reading()
        elif self._paused and self._backlog < BACKLOG_LOW and cancelled <= CANCELLED_HIGH // 2:
            self._paused = False
            self._shell.resume_reading()

    # -- events

    def _handle(self, event: events.Event) -> None:
        # A refused request is over for this side while its client still sends: the core discards until END or CANCEL.
        request = self._requests.get(getattr(event, "id", 0))
        match event:
            case events.Request():
                self.had_request = True
                self._owes(event)
                if self._refusal is not None:
                    self.send(events.Error(event.id, encode(Failure(fault(self._refusal)))))
                    self._close()
                    return
                if request is None:
                    request = self._requests[event.id] = ServedRequest(self, event.id)
                request.request(event)
            case events.Body():
                if request is None:
                    self._discard(len(event.chunk))
                else:
                    request.body(event.chunk)
            case events.End():
                self._paid(event.id)
                if request is not None:
                    request.end(event.segments, event.size)
            case events.Cancel():
                self._paid(event.id)
                if request is not None:
                    request.cancel()
            case events.Ping():
                self.send(events.Pong(event.payload))
            case events.VersionMismatch():
                log.info("%s speaks hpss versions %s", self.peer, event.versions)
                if self._refusal is None:  # Else it has a GOAWAY already.
                    self.send(events.VersionMismatch(VERSIONS))
                self._close()
            case events.PeerClosed():
                self._leave()
            case _:
                pass

    def _owes(self, event: events.Request) -> None:
        """Record whether the client must still send more of a request."""
        size = self._owed.get(event.id, 0) + len(event.payload)
        if size > MAX_MESSAGE:
            raise RemoteProtocolError(f"request {event.id}: {size} bytes, expected no more than {MAX_MESSAGE}")
        if event.more or event.body:
            self._owed[event.id] = size
        else:
            self._owed.pop(event.id, None)

    def _paid(self, request_id: int) -> None:
        """Record that the client sends nothing more of a request. Reset the count of discarded bytes, because at most
        one request at a time has a body in transit."""
        if self._owed.pop(request_id, None) is not None:
            self._discarded = 0

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > DRAIN_BYTES:
            self.discard_no_more(f"more than {DRAIN_BYTES} bytes came after that")

    def _leave(self) -> None:
        """Close the session once no request is open, including requests that crossed a GOAWAY."""
        self._leaving = True
        if not self._requests:
            self._close()

    def _close(self) -> None:
        if not self._closing:
            self._closing = True
            self._shell.close()

    def _abandon(self) -> None:
        """Abandon the open requests, as described in `connection_lost`."""
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.lost()
        self._bodies.clear()
        self._owed.clear()
