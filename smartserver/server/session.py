"""One connection of the server: `wire.Connection` events in, bytes out. No sockets, clocks or threads of its own.

A shell (TCP, stdio, simulator) hands over bytes and takes them away; the store's work runs in the executor it brings.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from smartserver.server.access import Access
from smartserver.server.exchange import Exchange
from smartserver.server.executor import Executor
from smartserver.server.site import Site
from smartserver.wire.connection import Connection, Role
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Event,
    GoAway,
    PeerClosed,
    Ping,
    Pong,
    Request,
    VersionMismatch,
)
from smartserver.wire.limits import MAX_REASON

log = logging.getLogger("smartserver")

BACKLOG_HIGH = 4 << 20
"""Unchecked bytes of uploads after which no more are read: keeps a fast link from filling memory."""

BACKLOG_LOW = 1 << 20
"""Unchecked bytes below which reading goes on."""

VERSIONS = (1,)
"""The versions of the wire this release speaks."""


class Shell(Protocol):
    """What carries the bytes."""

    def write(self, data: bytes) -> None:
        """Send, in order, without waiting."""

    def close(self) -> None:
        """Close once everything written has been sent, without losing it to unread input."""

    def pause_reading(self) -> None:
        """Read no more for now."""

    def resume_reading(self) -> None:
        """Read again."""


class Session:
    """The server's side of one connection."""

    def __init__(self, site: Site, access: Access, shell: Shell, executor: Executor, peer: str = "") -> None:
        self.site = site
        self.access = access
        self.executor = executor
        self.peer = peer
        self._shell = shell
        self._connection = Connection(Role.SERVER)
        self._exchanges: dict[int, Exchange] = {}
        self._bodies: deque[Exchange] = deque()
        self._backlog = 0
        self._paused = False
        self._writable = True
        self._leaving = False
        """Nothing more is to come, or to be taken: close after the last answer."""
        self._closing = False

    # -- from the shell

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._closing:
            return
        try:
            self._connection.receive_data(data)
            self._events()
        except RemoteProtocolError as wrong:
            self._give_up(wrong)

    def eof_received(self) -> None:
        """The peer sends no more."""
        if self._closing:
            return
        try:
            self._connection.receive_eof()
            self._events()
        except RemoteProtocolError as wrong:
            self._give_up(wrong)

    def connection_lost(self) -> None:
        """The connection is gone; what was being done for it is abandoned, unless it is past its commit."""
        self._closing = True
        for exchange in self._exchanges.values():
            exchange.lost()
        self._exchanges.clear()
        self._bodies.clear()

    def pause_writing(self) -> None:
        """The shell holds enough unsent bytes."""
        self._writable = False

    def resume_writing(self) -> None:
        """The shell wants more."""
        self._writable = True
        if self._bodies:
            self._bodies[0].pump()

    @property
    def idle(self) -> bool:
        """Whether no request is open."""
        return not self._exchanges

    def go_away(self, reason: str) -> None:
        """Take no new requests, finish those that are open, then close."""
        self.send(GoAway(reason.encode()[:MAX_REASON]))
        self._leave()

    # -- from exchanges

    def send(self, event: Event) -> None:
        """Send one event unless the connection is gone."""
        if not self._closing:
            self._shell.write(self._connection.send(event))

    @property
    def writable(self) -> bool:
        """Whether a body may go on."""
        return self._writable and not self._closing

    def finished(self, exchange: Exchange) -> None:
        """A request has its final answer."""
        self._exchanges.pop(exchange.id, None)
        if exchange in self._bodies:
            sending = self._bodies[0] is exchange
            self._bodies.remove(exchange)
            if sending and self._bodies:
                self._bodies[0].start_body()
        if self._leaving and not self._exchanges:
            self._close()

    def want_body(self, exchange: Exchange) -> None:
        """Queue an answer with a body: one at a time on a connection."""
        self._bodies.append(exchange)
        if self._bodies[0] is exchange:
            exchange.start_body()

    def backlog(self, change: int) -> None:
        """Account for bytes received and not yet checked."""
        self._backlog += change
        if self._backlog > BACKLOG_HIGH and not self._paused:
            self._paused = True
            self._shell.pause_reading()
        elif self._backlog < BACKLOG_LOW and self._paused:
            self._paused = False
            self._shell.resume_reading()

    # -- events

    def _events(self) -> None:
        while not self._closing and (event := self._connection.next_event()) is not None:
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Request():
                exchange = self._exchanges.get(event.id)
                if exchange is None:
                    exchange = self._exchanges[event.id] = Exchange(self, event.id)
                exchange.request(event)
            case Body():
                self._exchanges_do(event.id, lambda exchange: exchange.body(event.chunk))
            case End():
                self._exchanges_do(event.id, lambda exchange: exchange.end(event.segments, event.size))
            case Cancel():
                self._exchanges_do(event.id, lambda exchange: exchange.cancel())
            case Ping():
                self.send(Pong(event.payload))
            case VersionMismatch():
                log.info("%s speaks hpss versions %s", self.peer, event.versions)
                self.send(VersionMismatch(VERSIONS))
                self._close()
            case PeerClosed():
                self._leave()
            case _:
                pass

    def _exchanges_do(self, request_id: int, action: Callable[[Exchange], None]) -> None:
        # A refused request is over for this side while its client still sends: the core discards until END or CANCEL.
        exchange = self._exchanges.get(request_id)
        if exchange is not None:
            action(exchange)

    def _leave(self) -> None:
        """Close once no request is open, those that crossed a GOAWAY included."""
        self._leaving = True
        if not self._exchanges:
            self._close()

    def _close(self) -> None:
        if not self._closing:
            self._closing = True
            self._shell.close()

    def _give_up(self, wrong: RemoteProtocolError) -> None:
        log.info("%s: %s", self.peer or "a client", wrong)
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            exchange.lost()
        self._bodies.clear()
        self._close()
