"""Serves on a TCP port, with and without TLS. The first byte of a client shows whether it uses TLS."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from typing import Protocol as Interface

from twisted.internet import protocol
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress
from twisted.logger import LogEvent

from smartserver.errors import AccessDenied
from smartserver.server.access import Admission, Anonymous, anonymous
from smartserver.server.connections import Connections
from smartserver.server.outbox import unsent
from smartserver.server.shell import SessionProtocol
from smartserver.tcp_state import tcp_state
from smartserver.wire.limits import KIB, NOTSENT_LOWAT
from smartserver.wire.tls import HANDSHAKE

if TYPE_CHECKING:
    from smartserver.server.tls import KeyPair

log = logging.getLogger("smartserver")

ACCEPTING = "twisted.internet.tcp.Port"
"""The namespace of Twisted's log events about connections that could not be accepted."""

BACKLOG = 511
"""The most connections that the kernel holds before they are accepted. The kernel's own limit is net.core.somaxconn."""

FAST_OPEN_SETTING = "/proc/sys/net/ipv4/tcp_fastopen"
"""The file with Linux's setting for TCP Fast Open (RFC 7413)."""

FAST_OPEN_SERVER = 2
"""The bit of the setting that allows TCP Fast Open for servers. By default, Linux allows it only for clients."""

SOCKET_OPTIONS = {
    "TCP_NOTSENT_LOWAT": NOTSENT_LOWAT,
    # A peer that lost its power or its network is noticed within three minutes.
    "TCP_KEEPIDLE": 60,
    "TCP_KEEPINTVL": 20,
    "TCP_KEEPCNT": 6,
}
"""Options of each connection's socket, without those that the system does not know."""


SEND_LIMIT = 256 * KIB
"""The most bytes that Twisted passes to the kernel at a time. With Twisted's 128 KiB, and with 512 KiB, pulls by four
clients take a tenth more processor time: if the kernel accepts only a part, Twisted copies a rest that is below the
limit."""

MAX_TLS_STEPS = 4096
"""The most protocol steps of TLS that a client may cause on a connection. A handshake has some 20; a KeyUpdate has 3,
and its answer 27 bytes. Clients change keys once in 2**24 records (RFC 8446, 5.5), ours never."""

SENT_INTERVAL = 0.05
"""Seconds between two checks whether everything was sent."""


class Encryption(NamedTuple):
    """The certificate that a port offers."""

    key_pair: KeyPair
    required: bool
    """True if clients without TLS are refused."""


class ListeningPort(Interface):
    """An open port."""

    socket: socket.socket

    def getHost(self) -> IPv4Address | IPv6Address:
        """Return the address on which the port listens."""

    def stopListening(self) -> object:
        """Accept no more connections."""


class TcpReactor(Interface):
    """The part of a reactor that is used here."""

    def adoptStreamPort(
        self, fileDescriptor: int, addressFamily: socket.AddressFamily, factory: protocol.Factory
    ) -> ListeningPort:
        """Accept connections on a copy of a listening socket."""


Admit = Callable[[str, bool], Admission]
"""A function that returns the admission of a client. Its arguments are the client's address, and True if nobody can
read the requests on the way."""


class TcpFactory(protocol.Factory):
    """Makes a session for each connection. Without `encryption`, the port offers no TLS."""

    noisy = False

    def __init__(self, connections: Connections, admission: Admit, encryption: Encryption | None = None) -> None:
        self._connections = connections
        self._admission = admission
        self._encryption = encryption

    def buildProtocol(self, address: IAddress | None) -> SessionProtocol | None:
        """Return the protocol of a new connection. Return None, which closes the connection, if too many are being
        refused."""
        host = peer = ""
        if isinstance(address, (IPv4Address, IPv6Address)):
            host, peer = address.host, shown(address.host, address.port)
        refusal = self._connections.admit(peer, counted(host))
        if refusal is not None and not self._connections.may_refuse:
            return None
        made = TcpProtocol(self._connections, self._admission(host, is_loopback(host)), peer, counted(host), refusal)
        made.session.is_local = is_loopback(host)
        made.encryption = self._encryption
        made.secured = lambda: self._admission(host, True)
        return made


class TcpProtocol(SessionProtocol):
    """A TCP connection. Each write is sent as one flight, and the kernel buffers few unsent bytes."""

    encryption: Encryption | None = None
    secured: Callable[[], Admission]
    """Returns the admission of the client once the connection has TLS."""
    _began = False
    """True once the client has sent its first byte."""
    _is_secure = False
    """True once TLS has begun."""
    _tls_steps = 0

    def connectionMade(self) -> None:
        """Set the options of the socket, and begin the session."""
        connection: Any = self.transport
        connection.setTcpNoDelay(True)
        connection.setTcpKeepAlive(True)
        connection.SEND_LIMIT = SEND_LIMIT
        handle = connection.getHandle()
        for option, value in SOCKET_OPTIONS.items():
            number = getattr(socket, option, None)
            if number is not None:
                handle.setsockopt(socket.IPPROTO_TCP, number, value)
        self.session.link = partial(tcp_state, handle)
        super().connectionMade()

    def refuse_if_full(self) -> None:
        """Refuse the connection if too many are open, once it is known whether the client uses TLS."""
        if self._began or self.encryption is None:
            super().refuse_if_full()

    def dataReceived(self, data: bytes) -> None:
        """Process received bytes. The first byte decides whether TLS is used."""
        if not self._began and self.encryption is not None:
            self._began = True
            if data[0] == HANDSHAKE:
                self._is_secure = True
                self.session.admission = self.secured()
                self._carrier.startTLS(self.encryption.key_pair)
                self.refuse_if_full()
                self._carrier.protocol.dataReceived(data)
                return
            self.refuse_if_full()
            if self.encryption.required and self.refusal is None:
                self.session.refuse(AccessDenied("connect without TLS", "use hpss+tls:// in the URL"))
        super().dataReceived(data)

    def note_tls_step(self) -> None:
        """Count a protocol step of TLS that the client caused. Its answer waits in memory that the outbox does not
        count."""
        self._tls_steps += 1
        if self._tls_steps == MAX_TLS_STEPS:
            self.session.abort(f"it asks for new TLS keys again and again: {MAX_TLS_STEPS} steps of TLS")

    def lose(self) -> None:
        """Close both directions once everything is sent. Unlike TLS, this does not wait for the peer to close."""
        if self._is_secure and self.timeouts.sent_all is not None:
            self._carrier.abortConnection()
        else:
            super().lose()

    def _end_writing(self) -> None:
        if not self._is_secure:
            super()._end_writing()
            return
        # TLS closes both directions at once, and reads on until the peer has closed too.
        self._carrier.unregisterProducer()
        self._carrier.loseConnection()
        self._note_sent()

    def _note_sent(self) -> None:
        """Record the time when the last byte was sent, which Twisted does not report for a connection with TLS."""
        if not self._carrier.connected:
            return
        if unsent(self._carrier):
            self._connections.clock.callLater(SENT_INTERVAL, self._note_sent)
        else:
            self.writeConnectionLost()


def log_unaccepted(event: LogEvent) -> None:
    """Log Twisted's events about connections that could not be accepted: no file descriptor or no memory is left.
    Nothing else reads Twisted's log."""
    address, error = event.get("address"), event.get("acceptError")
    if event.get("log_namespace") != ACCEPTING:
        return
    if address is not None:
        log.warning("%s: closed at once: too many open files (`ulimit -n`)", shown(*address[:2]))
    elif error is not None:
        log.warning("a connection could not be accepted: %s", error)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def is_loopback(host: str) -> bool:
    """Return True if an address is this machine's loopback."""
    address = _address(host)
    return address is not None and address.is_loopback


def shown(host: str, port: int) -> str:
    """Return an address and port in their usual notation."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def counted(host: str) -> str:
    """Return the key under which connections of an address are counted: for IPv6 its /64 network, which may belong to
    one machine.

    Connections from this machine have an empty key and are not counted together, because a forwarder may serve many
    clients.
    """
    address = _address(host)
    if address is None or address.is_loopback:
        return ""
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def anonymous_by_address(policy: Anonymous) -> Admit:
    """Return a function that returns the admission of anonymous users, who may do more on this machine."""
    return lambda host, _private: anonymous(policy, local=is_loopback(host))


def open_port(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Raises:
        OSError: the address is in use, or is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][4]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def accept(reactor: TcpReactor, opened: socket.socket, factory: protocol.Factory) -> ListeningPort:
    """Accept connections on a listening socket. The socket is closed here, because the reactor has a copy."""
    with opened:
        return reactor.adoptStreamPort(opened.fileno(), opened.family, factory)


def fast_open(port: ListeningPort) -> str:
    """Allow a client to send its first bytes with the handshake (TCP Fast Open). Return the reason if that is
    impossible, else an empty string."""
    try:
        port.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, BACKLOG)
        with open(FAST_OPEN_SETTING, encoding="ascii") as file:
            setting = int(file.read())
    except (AttributeError, OSError, ValueError):
        return "this system does not have TCP Fast Open"
    if not setting & FAST_OPEN_SERVER:
        wanted = setting | FAST_OPEN_SERVER
        return f"this system does not let servers have it: set net.ipv4.tcp_fastopen to {wanted} (it is {setting})"
    return ""
