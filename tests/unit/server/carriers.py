"""Stand-ins of Twisted's transports: carriers of connections, clients that hear what was said, and passing time."""

from __future__ import annotations

import socket
from typing import cast

from dialogs import Served, message
from twisted.internet.task import Clock

from smartserver.server.access import invoking_user
from smartserver.server.connections import Clock as ReactorClock
from smartserver.server.connections import Connections
from smartserver.server.executor import InlineExecutor
from smartserver.server.limits import Limits
from smartserver.server.shell import SessionProtocol
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.connection import Connection
from smartserver.wire.events import Event, Request
from smartserver.wire.limits import PING_INTERVAL
from smartserver.wire.messages import RequestFlag, encode
from transports.errors import CodedError

PING = Request(1, encode(message((server_ping, PingRequest()), path="")))

INSERT = encode(message((repository_insert_pack, InsertPackRequest()), flags=RequestFlag.BODY))

ROOM = 65_536
"""Bytes above which Twisted says that it has enough."""


class Carrier:
    """A transport whose peer takes everything at once, or (`stuck`) nothing."""

    def __init__(self) -> None:
        self.written = b""
        self.calls: list[str] = []
        self.producer: object = None
        self.streaming = False
        self.stuck = False
        self.dataBuffer = b""
        self.offset = self._tempDataLen = 0
        self.writes: list[int] = []

    def write(self, data: bytes) -> None:
        self.written += data
        self.writes.append(len(data))
        if self.stuck:
            self.dataBuffer += data
            if len(self.dataBuffer) > ROOM and isinstance(self.producer, SessionProtocol):
                self.producer.pauseProducing()

    def fileno(self) -> int:
        return -1

    def take(self, size: int | None = None) -> None:
        """The peer takes so much, or what there is, and no more."""
        self.offset = len(self.dataBuffer) if size is None else self.offset + size
        if self.offset < len(self.dataBuffer):
            return
        full, self.dataBuffer, self.offset = self.offset > ROOM, b"", 0
        if full and isinstance(self.producer, SessionProtocol):
            self.producer.resumeProducing()

    def loseConnection(self) -> None:
        self.calls.append("lose")

    def abortConnection(self) -> None:
        self.calls.append("abort")

    def loseWriteConnection(self) -> None:
        self.calls.append("lose write")

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")

    def registerProducer(self, producer: object, streaming: bool) -> None:
        assert self.producer is None
        self.producer, self.streaming = producer, streaming

    def unregisterProducer(self) -> None:
        self.producer = None


class TcpCarrier(Carrier):
    """A TCP transport's extras."""

    def __init__(self) -> None:
        super().__init__()
        self.options: dict[int, int] = {}
        self.SEND_LIMIT = 0

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.calls.append(f"no delay {enabled}")

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.calls.append(f"keep alive {enabled}")

    def getHandle(self) -> TcpCarrier:
        return self

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert level == socket.IPPROTO_TCP
        self.options[option] = value


def connections_of(clock: Clock, limits: Limits | None = None, served: Served | None = None) -> Connections:
    """The connections of a server."""
    return Connections((served or Served()).site, InlineExecutor(), cast("ReactorClock", clock), limits)


def begin(
    connections: Connections, carrier: Carrier | None = None, address: str = "", refusal: CodedError | None = None
) -> tuple[SessionProtocol, Carrier]:
    """A connection."""
    made = SessionProtocol(connections, invoking_user("tester"), "a peer", address, refusal)
    carrier = carrier or Carrier()
    made.makeConnection(carrier)  # type: ignore[no-untyped-call]
    return made, carrier


def heard(carrier: Carrier, client: Connection) -> list[Event]:
    """The words of the server."""
    client.receive_data(carrier.written)
    carrier.written = b""
    events: list[Event] = []
    while (event := client.next_event()) is not None:
        events.append(event)
    return events


def wait(clock: Clock, seconds: float) -> None:
    """In the steps in which a reactor would."""
    while seconds > 0:
        clock.advance(min(seconds, PING_INTERVAL))
        seconds -= PING_INTERVAL
