"""`Link`: one connection, and the requests on it, one after another: encode, send, read, decode.

The link reads while it sends a body, so that an early refusal stops the body. The body of an answer is received only as
the caller reads it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from smartserver.client.medium import ConnectionLost, Medium
from smartserver.client.request import Answer, BodySource, NotOurProtocol, Outgoing, ProgressReport, Refusal
from smartserver.errors import UnknownRemoteError, error_from_wire, name_from
from smartserver.meters import BYTES_RECEIVED, BYTES_SENT, TRIPS, here
from smartserver.spans import Part, span, spans_of
from smartserver.verbs.declare import AnyVerb, Arguments, Result
from smartserver.wire.connection import Connection, Role
from smartserver.wire.errors import Interrupted, RemoteProtocolError
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Error,
    Event,
    GoAway,
    PeerClosed,
    Ping,
    Pong,
    Progress,
    Reply,
    Request,
    VersionMismatch,
)
from smartserver.wire.limits import IDLE_TIMEOUT, MAX_MESSAGE, MAX_RESULTS, PING_INTERVAL, RECEIVE_CHUNK
from smartserver.wire.messages import (
    PUSH_OPTIONS,
    Call,
    Fault,
    Outcome,
    Status,
    decode_failure,
    decode_progress,
    decode_reply,
    encode,
    named,
)
from smartserver.wire.messages import Request as RequestMessage
from smartserver.wire.observer import Observer
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.client.held import Holder, Resumed

FIRST_WRITE = 64 * 1024
"""Bytes of request and body gathered before the first write, so that a small push is one flight."""

NEXT_WRITE = 32 * 1024
"""Bytes gathered before each further write. The server processes them while the client generates the next bytes."""

LEAST_PATIENCE = 1.0
ROUND_TRIPS = 4
"""A server on a held connection may be silent for this many times the shortest round trip seen, and for at least
`LEAST_PATIENCE` seconds. After that, the request is repeated on another connection."""

LAST_ID = 1 << 31
"""The request id from which on a connection is no longer passed to a holder: half of all ids are used."""

WITHOUT_A_WORD = "the server closed the connection without an answer"
PERHAPS = "it may have stopped, or be too busy, or it may not speak hpss"

_encode = msgspec.msgpack.Encoder().encode


class Link:
    """One connection and the requests on it."""

    def __init__(
        self,
        medium: Medium,
        observers: Sequence[Observer],
        progress: ProgressReport | None,
        clock: Callable[[], float],
        above: str = "",
        resumed: Resumed | None = None,
        *,
        has_answered: bool = False,
    ) -> None:
        """`above`: the name that errors use for the served folder (`errors.known_as`). `resumed`: the facts about a
        connection that other commands used before. `has_answered`: the server answered on an earlier connection."""
        self._above = above
        self._medium = medium
        self._last_id = resumed.last_id if resumed else 0
        self._connection = Connection(Role.CLIENT, observers, last_id=self._last_id)
        self._progress = progress
        self._clock = clock
        self._patience = resumed.patience if resumed else None
        """Seconds of silence after which a resumed connection counts as lost, until its first byte was received; None
        for a new connection."""
        self._roundtrip = math.inf
        """The fewest seconds from a request to the first byte of its answer."""
        self._asked: float | None = None
        """The time of the last request; None once a byte was received after it."""
        self._silent = 0.0
        self._going_away = False
        self._heard = False
        """True once a byte was received."""
        self._why = ""
        """The server's reason for accepting no more requests on this connection."""
        self._open_body = 0
        self._outbox = bytearray()
        """Bytes to be written, in order. Nothing may be written between the bytes of a frame."""
        self._has_answered = has_answered
        self._expects = False
        """True if bytes were written and none were received since."""
        self.perhaps_read = False
        """True if the last request was sent completely and the server did not report that it was not read. The server
        may then carry it out."""

    @property
    def resumed(self) -> bool:
        """True if other commands used the connection before."""
        return self._patience is not None

    @property
    def _speaks_hpss(self) -> bool:
        """True if the server is known to speak hpss."""
        return self._heard or self._has_answered

    @property
    def usable(self) -> bool:
        """True if another request may be sent on this connection."""
        return not self._going_away and not self._open_body

    def close(self) -> None:
        """Close the medium."""
        self._medium.close()

    def leave(self, holder: Holder) -> bool:
        """Pass the connection to a holder if it is idle. Return True if the holder keeps it."""
        if not self.usable or self._outbox or not self._connection.at_rest or self._last_id >= LAST_ID:
            return False
        return holder.give(self._medium, self._last_id, max(LEAST_PATIENCE, ROUND_TRIPS * self._roundtrip))

    def exchange(self, outgoing: Outgoing, age: int, agent: str, token: str = "", traceparent: str = "") -> Answer:
        """Send a request and read its answer. Errors that the body raises are passed on. `age`: milliseconds since the
        request was first sent; 0 the first time. `token`: identifies the user. `traceparent`: the trace that the
        request belongs to.

        Raises:
            Refusal: the server changed nothing.
            ConnectionLost, RemoteProtocolError, NotOurProtocol: there was no answer.
        """
        said: dict[str, str | Sequence[str]] = {
            "agent": agent if outgoing.known is None else "",
            "token": token,
            "traceparent": traceparent,
            PUSH_OPTIONS: outgoing.options,
        }
        self._last_id += 1
        request_id = self._last_id
        self.perhaps_read = False
        message = RequestMessage(
            path=outgoing.path,
            id=outgoing.id,
            age=age,
            calls=[Call(verb.name, msgspec.Raw(_shortest(arguments))) for verb, arguments in outgoing.calls],
            flags=int(outgoing.flags),
            known=outgoing.known,
            extras={name: msgspec.Raw(_encode(value)) for name, value in said.items() if value},
        )
        has_body = outgoing.body is not None
        self._asked = self._clock()
        if self._patience is not None and not self._heard:
            self._outbox += self._connection.send(Ping(b"there?"))
        head = self._connection.send(Request(request_id, encode(message), body=has_body))
        incoming = Incoming(request_id)
        self._send(incoming, head, outgoing.body)
        while not incoming.final:
            self._wait(incoming)
        return self._finish(incoming, outgoing)

    # -- sending

    def _send(self, incoming: Incoming, head: bytes, body: BodySource | None) -> None:
        self._outbox += head
        if body is None:
            self._write(incoming)
            self.perhaps_read = True
            return
        segments = size = 0
        gathered = FIRST_WRITE
        for piece, ended in spans_of(Part.LOCAL, "make the body", body()):
            segments += ended
            size += len(piece)
            self._outbox += self._connection.send(Body(incoming.id, piece))
            if len(self._outbox) >= gathered:
                self._write(incoming)
                gathered = NEXT_WRITE
                if incoming.final:
                    if not self._going_away:
                        self._outbox += self._connection.send(Cancel(incoming.id))
                        self._write(incoming)
                    return
        self._outbox += self._connection.send(End(incoming.id, segments, size))
        self._write(incoming)
        self.perhaps_read = True

    def _write(self, incoming: Incoming) -> None:
        """Write all bytes of the outbox. Received bytes are read meanwhile."""
        if self._outbox:
            with span(Part.SEND):
                self._write_all(incoming)

    def _write_all(self, incoming: Incoming) -> None:
        silent = 0.0
        while self._outbox:
            readable, writable, silent = self._poll(silent, write=True)
            if readable:
                self._receive(incoming)
            if writable:
                try:
                    with memoryview(self._outbox) as view:
                        written = self._medium.write_some(view)
                except ConnectionLost as error:
                    self._going_away = True
                    if incoming.final:  # The answer is complete; only the connection is lost.
                        self._outbox.clear()
                        return
                    raise self._told(error) from None
                del self._outbox[:written]
                here.tally[BYTES_SENT] += written
                self._expects = True

    # -- receiving

    def _wait(self, incoming: Incoming) -> None:
        """Wait until data can be read, and read it. If the server is silent, send a ping."""
        with span(Part.LINK):
            readable, _, self._silent = self._poll(self._silent, write=False)
        if readable:
            self._receive(incoming)
        else:
            self._outbox += self._connection.send(Ping(b"alive?"))
        self._write(incoming)

    def _poll(self, silent: float, *, write: bool) -> tuple[bool, bool, float]:
        """Wait until the medium is readable or writable. Return (readable, writable, seconds of silence). If neither is
        true, the seconds of this wait are added to `silent`; else the silence is 0."""
        started = self._clock()
        patience = None if self._heard else self._patience
        readable, writable = self._medium.poll(read=True, write=write, timeout=patience or PING_INTERVAL)
        if readable or writable:
            return readable, writable, 0.0
        silent += self._clock() - started
        if silent > IDLE_TIMEOUT or (patience is not None and silent >= patience):
            raise ConnectionLost(f"the server did not answer for {silent:.0f} s")
        return False, False, silent

    def _receive(self, incoming: Incoming) -> None:
        with span(Part.RECEIVE):
            self._read(incoming)

    def _read(self, incoming: Incoming) -> None:
        try:
            received = self._medium.read(RECEIVE_CHUNK)
        except ConnectionLost as error:
            raise self._told(error) from None
        if received:
            self._heard = True
            tally = here.tally
            tally[BYTES_RECEIVED] += len(received)
            tally[TRIPS] += self._expects
            self._expects = False
            if self._asked is not None:
                self._roundtrip = min(self._roundtrip, self._clock() - self._asked)
                self._asked = None
            self._connection.receive_data(received)
        else:
            self._connection.receive_eof()
        try:
            while (event := self._connection.next_event()) is not None:
                self._handle(event, incoming)
        except Interrupted as early:
            if not self._speaks_hpss:
                raise ConnectionLost(f"{WITHOUT_A_WORD}: {PERHAPS}") from early
            when = "in the middle of" if incoming.final else "before"
            raise ConnectionLost(f"the server closed the connection {when} its answer{self._why}") from early
        if not received and self._outbox:
            if incoming.final:  # The answer is complete.
                self._outbox.clear()
                return
            raise ConnectionLost(f"the server closed the connection while the request was sent{self._why}")

    def _told(self, lost: ConnectionLost) -> ConnectionLost:
        """Return the error for a broken connection, with a hint if no server ever answered at this place."""
        if self._speaks_hpss:
            return ConnectionLost(f"the connection to the server broke ({lost})")
        return ConnectionLost(f"{WITHOUT_A_WORD} ({lost}): {PERHAPS}")

    def _handle(self, event: Event, incoming: Incoming) -> None:
        match event:
            case Reply() | Error():
                incoming.part(event)
            case Body():
                incoming.chunks.append(event.chunk)
            case End():
                incoming.ended = event
            case Progress():
                if self._progress is not None:
                    message = decode_progress(event.payload)
                    self._progress(message.phase, message.done, message.total)
            case Ping():
                self._outbox += self._connection.send(Pong(event.payload))
            case GoAway():
                self._going_away = True
                self._why = f": {event.reason.decode('utf-8', 'backslashreplace')}" if event.reason else ""
            case VersionMismatch():
                self.perhaps_read = False
                spoken = ", ".join(map(str, event.versions))
                raise NotOurProtocol(f"the server speaks hpss version {spoken}, this client version 1")
            case PeerClosed():
                self._going_away = True  # If an answer were due, this would be `Interrupted`.
            case _:
                pass

    def _finish(self, incoming: Incoming, outgoing: Outgoing) -> Answer:
        payload = b"".join(incoming.payload)
        if incoming.refused:
            failure = decode_failure(payload)
            outcomes = [self._error(outcome.fault) for outcome in failure.outcomes]
            raise Refusal(self._error(failure.fault) or UnknownRemoteError("", ""), outcomes, failure.state)
        reply = decode_reply(payload)
        if len(reply.outcomes) != len(outgoing.calls):
            expected, got = len(outgoing.calls), len(reply.outcomes)
            raise RemoteProtocolError(f"expected an outcome for each of {expected} calls, got {got}")
        size = sum(len(outcome.result) for outcome in reply.outcomes if outcome.status == Status.DONE)
        faults = sum(len(outcome.fault.arguments) for outcome in reply.outcomes if outcome.fault is not None)
        if max(size, faults) > MAX_RESULTS:
            why = f"{size} bytes of results and {faults} of errors"
            raise RemoteProtocolError(f"expected at most {MAX_RESULTS} of each, got {why}")
        results = [
            self._result(verb, outcome) for (verb, _), outcome in zip(outgoing.calls, reply.outcomes, strict=True)
        ]
        if incoming.has_body:
            self._open_body = incoming.id
        return Answer(results, reply.state, reply.counters, reply.capabilities, self._body(incoming), reply.advice)

    def _body(self, incoming: Incoming) -> Iterator[bytes]:
        if not incoming.has_body:
            return
        while True:
            while incoming.chunks:
                yield incoming.chunks.popleft()
            if incoming.ended is not None:
                self._open_body = 0
                return
            if incoming.refused:
                self._open_body = 0
                failure = decode_failure(b"".join(incoming.payload))
                raise self._error(failure.fault) or UnknownRemoteError("", "")
            self._wait(incoming)

    def _result(self, verb: AnyVerb, outcome: Outcome) -> Result | CodedError:
        if outcome.status != Status.DONE:
            return self._error(outcome.fault) or UnknownRemoteError("", f"status {outcome.status}")
        try:
            result: Result = msgspec.msgpack.decode(outcome.result, type=verb.result_type)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"expected a result of {verb.name}, got one that is none: {error}") from None
        return result

    def _error(self, fault: Fault | None) -> CodedError | None:
        if fault is None:
            return None
        error = error_from_wire(fault.code, named(fault))
        name_from(self._above, error)
        return error


class Incoming:
    """The parts of an answer that were received so far."""

    def __init__(self, request_id: int) -> None:
        self.id = request_id
        self.payload: list[bytes] = []
        self.chunks: deque[bytes] = deque()
        self.ended: End | None = None
        self.final = False
        """True if the reply or refusal is complete."""
        self.refused = False
        self.has_body = False
        self._size = 0

    def part(self, event: Reply | Error) -> None:
        """Add a part of the reply or refusal."""
        if isinstance(event, Error) and not self.refused:
            self.refused = True
            self.payload.clear()  # An ERROR after the REPLY: the body ends here.
            self._size = 0
        self._size += len(event.payload)
        if self._size > MAX_MESSAGE:
            raise RemoteProtocolError(f"expected a reply of no more than {MAX_MESSAGE} bytes, got {self._size}")
        self.payload.append(event.payload)
        if isinstance(event, Reply):
            self.has_body = event.body
        self.final = not event.more


def _shortest(arguments: Arguments) -> bytes:
    """Encode arguments without the defaults at their end, which the server fills in. This saves some ten bytes of a
    small push."""
    values = [getattr(arguments, name) for name in arguments.__struct_fields__]
    for default in reversed(arguments.__struct_defaults__):
        factory = getattr(default, "factory", None)
        if values[-1] != (default if factory is None else factory()):
            break
        values.pop()
    return _encode(values)
