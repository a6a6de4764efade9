"""Connections of the gateway: HTTP/1.1 by `twisted.web`, with and without TLS. They count as connections of the server.

Timeouts: the head of a request must arrive within `HEAD` seconds of the start of the connection, or of the end of the
previous answer. A client that stops sending a body or stops reading its answer is disconnected after the same time as a
client of hpss://. The time for the rest of a refused request is also the same. While the server works for a client, the
client may be silent.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from twisted.internet import protocol
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure
from twisted.web import http

from smartserver.gateway.gateway import Gateway
from smartserver.gateway.http_request import GatewayRequest
from smartserver.gateway.places import Places
from smartserver.gateway.updates import Updates
from smartserver.meters import BYTES_RECEIVED, CONNECTIONS, here
from smartserver.server.access import Admission
from smartserver.server.connections import Connections
from smartserver.server.fair import Tenant
from smartserver.server.outbox import unacknowledged
from smartserver.server.tcp import MAX_TLS_STEPS, SOCKET_OPTIONS, Encryption, counted, is_loopback, shown
from smartserver.wire.limits import DRAIN_SECONDS
from smartserver.wire.tls import HANDSHAKE
from transports.errors import CodedError

log = logging.getLogger("smartserver")

HEAD: Final = 30.0
"""Seconds that the head of a request may take, and that a connection is kept for another request. After such a pause, a
new connection costs a client little in comparison."""

LOOK: Final = 5.0
"""The most seconds between two checks of a connection's timeouts."""

Admit = Callable[[bool], Admission]
"""A function that returns the admission of a client's requests. Its argument is True if the connection is private."""


class GatewayFactory(protocol.Factory):
    """Makes a channel for each connection. Without `encryption`, the port offers no TLS."""

    noisy = False

    def __init__(
        self, gateway: Gateway, connections: Connections, admission: Admit, reactor: Any, encryption: Encryption | None
    ) -> None:
        self.gateway = gateway
        self.connections = connections
        self.admission = admission
        self.reactor = reactor
        self.encryption = encryption
        self.updates = Updates(gateway)
        self.places = Places()

    def buildProtocol(self, address: IAddress | None) -> GatewayChannel | None:
        """Return the channel of a new connection. Return None, which closes the connection, if too many are being
        refused."""
        host = peer = ""
        if isinstance(address, (IPv4Address, IPv6Address)):
            host, peer = address.host, shown(address.host, address.port)
        refusal = self.connections.admit(peer, counted(host))
        if refusal is not None and not self.connections.may_refuse:
            return None
        return GatewayChannel(self, host, peer, refusal)

    def log(self, request: object) -> None:
        """Log nothing, because each request is logged separately."""


class GatewayChannel(http.HTTPChannel):
    """One HTTP connection. `Connections` uses this object also as the session and the timeouts of the connection."""

    requestFactory = GatewayRequest  # type: ignore[assignment]  # It is the same to Twisted.
    timeOut = None  # `_look` has its times.
    maxHeaders = 100
    totalHeadersSize = 16 << 10
    persistent: int
    requests: list[GatewayRequest]
    transport: Any
    _path: bytes  # type: ignore[assignment]  # Twisted names two things so.
    _command: bytes
    _version: bytes
    _networkProducer: Any

    def __init__(self, factory: GatewayFactory, host: str, peer: str, refusal: CodedError | None) -> None:
        super().__init__()
        self.factory = factory
        self.gateway, self.reactor = factory.gateway, factory.reactor
        self.updates, self.places = factory.updates, factory.places
        self.admission = factory.admission
        self.peer, self.address, self.refusal = peer, counted(host), refusal
        self.client = Tenant(self.address)
        self.is_local = is_loopback(host)
        self.is_secure = False
        self.had_request = False
        self.closing = False
        self.sent_all: float | None = None
        self.discards = False
        """True if further bytes are ignored."""
        self._reads = True
        """True while the body is read, False while reading is paused."""
        self._has_head = False
        """True if the head of a request was received that is not answered yet."""
        self._refused: float | None = None
        """The time at which the request was refused; None if it was accepted."""
        self._heard = self._moved = self._idle = 0.0
        """The times at which the client last sent bytes and last received bytes, and at which its last request
        ended."""
        self._untaken = 0
        self._steps = 0
        self._timer: Any = None
        self._leave_by: float | None = None

    @property
    def is_private(self) -> bool:
        """True if nobody can read the client's requests on the way: they are encrypted or stay on this machine."""
        return self.is_secure or self.is_local

    # -- from Twisted

    def connectionMade(self) -> None:
        """Set the socket's options, and begin to watch the connection."""
        super().connectionMade()
        self.transport.setTcpKeepAlive(True)
        handle = self.transport.getHandle()
        for option, value in SOCKET_OPTIONS.items():
            number = getattr(socket, option, None)
            if number is not None:
                handle.setsockopt(socket.IPPROTO_TCP, number, value)
        self._handle = self.transport
        self._heard = self._moved = self._idle = self._now
        self.factory.connections.opened(self)
        here.tally[CONNECTIONS] += 1
        self._look()

    def dataReceived(self, data: bytes) -> None:
        """Process received bytes. The first byte shows whether the client uses TLS."""
        here.tally[BYTES_RECEIVED] += len(data)
        self._heard = self._now
        if not self.had_request:
            self.had_request = True
            encryption = self.factory.encryption
            if encryption is not None and not self.is_secure and data[0] == HANDSHAKE:
                self.is_secure = True
                self.had_request = False
                self.transport.startTLS(encryption.key_pair)
                self.transport.protocol.dataReceived(data)
                return
            if self.refusal is not None:
                self._say_and_close(503, str(self.refusal))
            elif encryption is not None and encryption.required and not self.is_secure:
                self._say_and_close(403, "this server wants https:// in the URL")
        if not self.discards:
            super().dataReceived(data)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Stop counting the connection, and cancel its timer, because it is closed."""
        self.closing = True
        self.factory.connections.closed(self)
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        super().connectionLost(reason)
        self.factory.connections.changed()

    def lineReceived(self, line: bytes) -> None:
        """Process a line of a request's head, unless further bytes are ignored."""
        if not self.discards:
            super().lineReceived(line)

    def rawDataReceived(self, data: bytes) -> None:
        """Process a part of a body, or of the next request behind it."""
        if not self.discards:
            super().rawDataReceived(data)

    def requestDone(self, request: GatewayRequest) -> None:
        """Record the end of a request. Twisted then begins the next one."""
        self._has_head = False
        self._refused = None
        self._idle = self._now
        super().requestDone(request)

    def isSecure(self) -> bool:
        """Return True if the connection has TLS."""
        return self.is_secure

    def note_tls_step(self) -> None:
        """Count a protocol step of TLS that the client caused. Drop the connection after `MAX_TLS_STEPS`."""
        self._steps += 1
        if self._steps == MAX_TLS_STEPS:
            self.abort(f"it asks for new TLS keys again and again: {MAX_TLS_STEPS} steps of TLS")

    # -- from requests

    def head_came(self) -> None:
        """Record that the head of a request was received."""
        self._has_head = True

    def refuse_body(self) -> None:
        """Record that the request was refused. The rest of its body must arrive within `DRAIN_SECONDS`."""
        self._refused = self._now

    def let_read(self, more: bool) -> None:
        """Resume reading if `more` is true, else pause it."""
        self._reads = more
        if more:
            self._heard = self._now
            self._networkProducer.resumeProducing()
        else:
            self._networkProducer.pauseProducing()

    def abort(self, why: str) -> None:
        """Close the connection at once, and log the reason."""
        log.warning("%s: dropped: %s", self.peer, why)
        self.closing = True
        self.discards = True
        self.transport.abortConnection()

    # -- from `Connections`

    @property
    def session(self) -> GatewayChannel:
        """The channel itself, as the session of the connection."""
        return self

    timeouts = session

    @property
    def idle(self) -> bool:
        """True if no request is open."""
        return not self._has_head

    def idle_since(self, now: float) -> float | None:
        """Return the time since which no request is open; None while a request is open."""
        return None if self._has_head else self._idle

    def must_leave(self, now: float) -> None:
        """Limit the remaining time of the connection, because a new connection needs its place."""
        self._leave_by = now + self.factory.connections.drain_time

    def go_away(self, reason: str) -> None:
        """Accept no new requests, and close the connection once no request is open."""
        self.persistent = 0
        if not self._has_head:
            self.lose()

    def lose(self) -> None:
        """Close the connection once everything is sent."""
        if self.closing:
            return
        self.closing = self.discards = True
        if self._leave_by is None:
            self._leave_by = self._now + HEAD
        self.loseConnection()

    # -- time

    @property
    def _is_receiving(self) -> bool:
        """True if the client must send more of a body."""
        return self._has_head and self._reads and not self._handlingRequest

    @property
    def _now(self) -> float:
        now: float = self.reactor.seconds()
        return now

    def _look(self) -> None:
        """Close the connection if one of its timeouts has passed, else schedule the next check."""
        now, idle = self._now, self.factory.connections.limits.idle
        untaken = unacknowledged(self._handle)
        if untaken < self._untaken or (untaken and not self._untaken):
            self._moved = now
        self._untaken = untaken
        if self._leave_by is not None and now >= self._leave_by:
            self.abort("another connection needs its place")
        elif untaken and now - self._moved >= idle:
            self.abort(f"the client read nothing of its answer for {now - self._moved:.0f} s")
        elif not (self._has_head or untaken or self.closing) and now - max(self._idle, self._moved) >= HEAD:
            self._end_idle()
        elif self._is_receiving and now - self._heard >= idle:
            self.abort(f"nothing of the rest of a request came for {now - self._heard:.0f} s")
        elif self._is_receiving and self._refused is not None and now - self._refused >= DRAIN_SECONDS:
            self.abort(f"a request still came {now - self._refused:.0f} s after it was refused")
        if self.connected:
            self._timer = self.reactor.callLater(min(LOOK, idle / 4), self._look)

    def _end_idle(self) -> None:
        if self.requests:  # A part of a head was received.
            self.abort(f"no request came for {HEAD:.0f} s")
        else:
            self.lose()

    def _say_and_close(self, status: int, why: str) -> None:
        """Send an answer without reading the request, and close."""
        content = f"{why}\n".encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (status, http.RESPONSES[status], len(content), content)
        )
        self.lose()
