"""The network under a program's own sockets: their connections go through a proxy, and each message has its call sites.

A connection to a server on this machine (or to a given server) is redirected through a `Proxy`, so it takes the RTT of
the link and is counted. The stack of the program shows the lines that send.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import threading
from asyncio import wrap_future
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from netem.callsites import CallSites, call_sites
from netem.counter import Counts
from netem.link import Link
from netem.patches import Patches
from netem.proxy import DOORS, Proxy
from netem.proxy_connection import Address, Ends
from netem.proxy_thread import STARTING, THREAD, ProxyError
from netem.sendlog import SendLog
from netem.units import NANOSECONDS


class AlreadyWatched(RuntimeError):
    """Another `Watched` is entered in this process already."""


_one_at_a_time = threading.Lock()


def _promise() -> Future[None]:
    made: Future[None] = Future()
    made.set_running_or_notify_cancel()  # a task that waits for it and is cancelled cancels itself alone
    return made


@dataclass
class _Client:
    """One connection of the program. The program's thread or the proxy's thread may be the first to create it."""

    ends: Ends
    log: SendLog = field(default_factory=SendLog)
    counted: Future[None] = field(default_factory=_promise)
    """A future that is done when the proxy counts the connection."""
    established: Future[None] = field(default_factory=_promise)
    """A future that is done when the connection's handshake is over."""
    known: bool = False
    """True if the program's thread has registered the connection."""
    ended: bool = False
    """True if the connection has ended in the proxy."""


class Watched:
    """A context manager that puts every TCP connection of this process to `servers` on a link.

    `servers`: the (host, port) of each server; None means every server on a loopback address. `options` are those of
    `Proxy`.

        with Watched(rtt=0.05) as network, round_trips(network, at_most=2):
            urllib.request.urlopen("http://127.0.0.1:8000/")
    """

    def __init__(self, rtt: float = 0.05, *, servers: Iterable[Address] | None = None, **options: Any) -> None:
        self._servers = None if servers is None else {each for server in servers for each in _addresses(*server)}
        self._proxy = Proxy(rtt, None, **options)
        self._proxy.on_accepted = self._accepted
        self._proxy.on_established = self._established
        self._proxy.on_ended = self._ended
        self._proxy.sites = self._received
        self._doors: dict[Address, Address] = {}
        self._opening_door = threading.Lock()
        """The lock of `_doors`. Its holder waits for the proxy's thread, so that thread must never acquire it."""
        self._clients: dict[Ends, _Client] = {}
        """Two addresses -> the last connection between them. An earlier connection between them may not have ended in
        the proxy yet."""
        self._lock = threading.Lock()
        """The lock of `_clients`. Its holder never waits."""
        self._numbered: dict[int, _Client] = {}
        """The connections by their numbers in the proxy. Only the proxy's thread uses it."""
        self._patches = Patches(self)
        self._process = os.getpid()
        self._entered = False

    def __enter__(self) -> Self:
        """Start the proxy and patch the sockets.

        Raises:
            AlreadyWatched: another `Watched` is entered.
        """
        if not _one_at_a_time.acquire(blocking=False):
            raise AlreadyWatched("the sockets of this process are watched already")
        self._entered = True
        try:
            self._proxy.start()
            self._patches.apply()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if kind is None:
            self._proxy.check()

    def close(self) -> None:
        """Undo the patches and close the connections on the link. Closing twice is harmless."""
        if self._entered:
            self._entered = False
            self._patches.undo()
            _one_at_a_time.release()
            self._proxy.close()

    @property
    def link(self) -> Link:
        """The current link."""
        return self._proxy.link

    def change(self, link: Link) -> None:
        """Replace the link from now on, for open connections too; see `Proxy.change`."""
        self._proxy.change(link)

    def take(self) -> Counts:
        """Return the counts of all connections since the last `take` or the start, and begin a new operation."""
        return self._proxy.take()

    def counts(self) -> Counts:
        """Return the counts so far without resetting them."""
        return self._proxy.counts()

    def connect(self, sock: socket.socket, address: Any, connect: Callable[[Any], Any]) -> Any:
        """Redirect a connection to one of the servers through the proxy. A blocking connect waits for the handshake."""
        door = self._door(sock, address)
        if door is None:
            return connect(address)
        if _is_connected(sock):  # Twisted connects a second time, to find out whether the socket is connected
            return connect(door)
        self._patches.look_for_twisted()
        patience = STARTING + self._proxy.link.round_trip / NANOSECONDS
        try:
            error = connect(door)  # `connect_ex` returns an error, `connect` raises it
        except BlockingIOError:
            self._opened(sock, door)
            raise
        if error in (None, 0, errno.EINPROGRESS):
            client = self._opened(sock, door)
            if not error and self._proxy.handshake and sock.gettimeout() != 0:
                self._await(client.established, patience)
        return error

    async def connected(self, sock: socket.socket) -> None:
        """Wait for the emulated handshake. The kernel's own handshake is over already."""
        client = self._client(sock)
        if client is not None and self._proxy.handshake and threading.current_thread().name != THREAD:
            await wrap_future(client.established)

    def _opened(self, sock: socket.socket, door: Address) -> _Client:
        """Register a connection that is open, or being opened. Wait until the counter has it, so that `take` includes
        it."""
        ends: Ends = sock.getsockname()[:2], door
        with self._lock:
            client = self._clients.get(ends)
            if client is None or client.known:  # an earlier connection
                client = self._clients[ends] = _Client(ends)
            client.known = True
            if client.ended:
                del self._clients[ends]
        self._await(client.counted, STARTING)
        return client

    def _await(self, future: Future[None], patience: float) -> None:
        try:
            future.result(patience)
        except TimeoutError as error:
            self._proxy.check()
            raise ProxyError(f"the proxy does not answer after {patience:g} s") from error

    def _accepted(self, number: int, ends: Ends) -> None:
        with self._lock:
            client = self._clients.get(ends)
            if client is None or client.counted.done():  # an earlier connection
                client = self._clients[ends] = _Client(ends)
        self._numbered[number] = client
        client.counted.set_result(None)

    def _established(self, number: int) -> None:
        self._numbered[number].established.set_result(None)

    def _ended(self, number: int) -> None:
        client = self._numbered.pop(number)
        with self._lock:
            client.ended = True
            if client.known and self._clients.get(client.ends) is client:
                del self._clients[client.ends]
        if not client.established.done():  # the proxy was closed before the end of the handshake
            client.established.set_result(None)

    def send(self, sock: socket.socket, send: Callable[[], int]) -> int:
        """Send for the program and log its call sites."""
        client = self._client(sock)
        return send() if client is None else client.log.send(call_sites(), send)

    def write(self, sock: socket.socket, size: int) -> None:
        """Log the call sites of bytes that a transport sends later."""
        client = self._client(sock)
        if client is not None:
            client.log.writing(size, call_sites())

    def _client(self, sock: socket.socket) -> _Client | None:
        try:
            return self._clients.get((sock.getsockname()[:2], sock.getpeername()[:2]))
        except OSError:  # closed
            return None

    def _received(self, number: int, size: int) -> CallSites:
        return self._numbered[number].log.received(size)

    def _door(self, sock: socket.socket, address: Any) -> Address | None:
        """Return the address on which the proxy listens for that server; None if the connection is not redirected."""
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
            return None
        if threading.current_thread().name == THREAD:  # a proxy connects to its server
            return None
        if os.getpid() != self._process:  # a forked process, in which no proxy runs
            return None
        try:
            server = _addresses(address[0], address[1], sock.family)[0]
        except (OSError, LookupError, TypeError, ValueError):
            return None  # the connect itself raises the error
        if not (_is_loopback(server[0]) if self._servers is None else server in self._servers):
            return None
        with self._opening_door:
            if server not in self._doors:
                if _is_door(server):
                    return None
                here = "::1" if sock.family == socket.AF_INET6 else "127.0.0.1"
                self._doors[server] = self._proxy.relay(server, (here, 0))
            return self._doors[server]


def _addresses(host: str, port: int, family: int = socket.AF_UNSPEC) -> list[Address]:
    """Return the IP addresses of a host, each with the port."""
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    return [(str(address[0]), int(address[1])) for *_, address in found]


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    found = _reached(host)
    return found is not None and found.is_loopback


def _is_door(server: Address) -> bool:
    """Tell whether a proxy of this process listens on an address, or on all addresses of its family."""
    found = _reached(server[0])
    for host, port in list(DOORS):
        if port == server[1] and found is not None:
            here = ipaddress.ip_address(host.partition("%")[0])
            everywhere = here.is_unspecified and here.version == found.version
            if found == here or (everywhere and found.is_loopback):
                return True
    return False


def _reached(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a connection to `host` reaches; None if `host` is not an IP address."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_unspecified:  # a connection to the unspecified address reaches the loopback address
        return ipaddress.ip_address("127.0.0.1" if found.version == 4 else "::1")
    return found
