"""The network under a program's own sockets: what it opens goes through a proxy, and each message knows who sent it.

A connection to a server on this machine (or to a named one) is led through a `Proxy` on its way, so it takes the RTT it
is given and is counted like any other. The lines of the program that send are found by looking at its stack.
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
    """The sockets of this process are under another network already."""


_one_at_a_time = threading.Lock()


def _promise() -> Future[None]:
    made: Future[None] = Future()
    made.set_running_or_notify_cancel()  # a task that waits for it and is cancelled cancels itself alone
    return made


@dataclass
class _Client:
    """One connection of the program. Its thread and the proxy's both hear of it, and either may be first."""

    ends: Ends
    log: SendLog = field(default_factory=SendLog)
    counted: Future[None] = field(default_factory=_promise)
    """Done when the proxy counts it."""
    established: Future[None] = field(default_factory=_promise)
    """Done when its handshake is over."""
    known: bool = False
    """The program's thread has heard of it."""
    ended: bool = False
    """Nothing is left of it in the proxy."""


class Watched:
    """Puts every TCP connection that this process opens to `servers` on a link, as long as it is entered.

    `servers`: (host, port) of those meant; None: every server on a loopback address. `options` are those of `Proxy`.

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
        """The lock of `_doors`. Its holder waits for the proxy's thread, which therefore must never want it."""
        self._clients: dict[Ends, _Client] = {}
        """The last one with those ends: what is left of an earlier one may still be in the proxy."""
        self._lock = threading.Lock()
        """The lock of `_clients`. Its holder never waits."""
        self._numbered: dict[int, _Client] = {}
        """By their numbers in the proxy; of its thread alone."""
        self._patches = Patches(self)
        self._process = os.getpid()
        self._entered = False

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            AlreadyWatched: inside another one.
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
        """Let the sockets be as they were, and close what went over the link. Twice is nothing."""
        if self._entered:
            self._entered = False
            self._patches.undo()
            _one_at_a_time.release()
            self._proxy.close()

    @property
    def link(self) -> Link:
        """The link that it has now."""
        return self._proxy.link

    def change(self, link: Link) -> None:
        """Make it another link from now on, for open connections too; see `Proxy.change`."""
        self._proxy.change(link)

    def take(self) -> Counts:
        """The counts since the last `take` (or the beginning), over all connections; a new operation begins."""
        return self._proxy.take()

    def counts(self) -> Counts:
        """Return the counts so far, and go on counting."""
        return self._proxy.counts()

    def connect(self, sock: socket.socket, address: Any, connect: Callable[[Any], Any]) -> Any:
        """Lead a connection through the proxy, if it is one of those meant. Who blocks waits for the handshake."""
        door = self._door(sock, address)
        if door is None:
            return connect(address)
        if _is_connected(sock):  # Twisted asks a second time, to learn whether it is
            return connect(door)
        self._patches.look_for_twisted()
        patience = STARTING + self._proxy.link.round_trip / NANOSECONDS
        try:
            error = connect(door)  # of `connect_ex`; `connect` raises it
        except BlockingIOError:
            self._opened(sock, door)
            raise
        if error in (None, 0, errno.EINPROGRESS):
            client = self._opened(sock, door)
            if not error and self._proxy.handshake and sock.gettimeout() != 0:
                self._await(client.established, patience)
        return error

    async def connected(self, sock: socket.socket) -> None:
        """Let the handshake pass, which the kernel says is over already."""
        client = self._client(sock)
        if client is not None and self._proxy.handshake and threading.current_thread().name != THREAD:
            await wrap_future(client.established)

    def _opened(self, sock: socket.socket, door: Address) -> _Client:
        """A connection is made, or being made. It is counted before the program goes on, so that `take` finds it."""
        ends: Ends = sock.getsockname()[:2], door
        with self._lock:
            client = self._clients.get(ends)
            if client is None or client.known:  # of an earlier connection
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
            if client is None or client.counted.done():  # of an earlier connection
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
        if not client.established.done():  # the proxy was closed meanwhile
            client.established.set_result(None)

    def send(self, sock: socket.socket, send: Callable[[], int]) -> int:
        """Note who sends."""
        client = self._client(sock)
        return send() if client is None else client.log.send(call_sites(), send)

    def write(self, sock: socket.socket, size: int) -> None:
        """Note who will have sent."""
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
        """The address on which the proxy listens for that server; None when the connection is left alone."""
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
            return None
        if threading.current_thread().name == THREAD:  # a proxy on its way to the server
            return None
        if os.getpid() != self._process:  # a fork, in which no proxy runs
            return None
        try:
            server = _addresses(address[0], address[1], sock.family)[0]
        except (OSError, LookupError, TypeError, ValueError):
            return None  # connecting says what is wrong
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
    """The addresses of a name."""
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
    """True if a proxy of this process listens there, or on all addresses of that family."""
    found = _reached(server[0])
    for host, port in list(DOORS):
        if port == server[1] and found is not None:
            here = ipaddress.ip_address(host.partition("%")[0])
            everywhere = here.is_unspecified and here.version == found.version
            if found == here or (everywhere and found.is_loopback):
                return True
    return False


def _reached(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Whom a connection to that address reaches; None: it is no address."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_unspecified:  # of all addresses of this machine, this one
        return ipaddress.ip_address("127.0.0.1" if found.version == 4 else "::1")
    return found
