"""The proxy: a TCP relay that puts a link between a client and a server, in wall time, and counts the round trips.

Bytes of each direction are delivered in order at absolute times. So errors do not add up, and bytes in transit do not
wait for the bytes ahead of them (pipelining works). TCP's own behaviour over distance (slow start, Nagle,
retransmission) is absent, because both sockets of a connection are on this machine.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from netem.callsites import CallSites
from netem.counter import Counter, Counts
from netem.effects import Effect
from netem.link import BUFFER, WINDOW, Link
from netem.proxy_connection import ConnectionObserver, Ends, ProxyConnection, ProxySocket
from netem.proxy_thread import ProxyError as ProxyError
from netem.proxy_thread import ProxyThread

REFILL = 0.02
"""The least buffer for bytes that wait for the link, in seconds at the link's rate."""

TURNS = 6
"""Turns of the event loop before a proxy ends. In these turns a socket that was just accepted becomes a connection and
is aborted."""

DOORS: set[tuple[str, int]] = set()
"""The addresses on which the proxies of this process listen. The proxies count the connections to these addresses."""


def filled(link: Link) -> Link:
    """Return the link with a buffer for `REFILL` seconds of its rate, unless its buffer differs from the default."""
    # On a fast link, a smaller buffer would be empty before the loop fills it again.
    if link.rate is None or link.buffer != BUFFER:
        return link
    return replace(link, buffer=max(BUFFER, int(link.rate * REFILL)))


class Proxy:
    """A link in front of a server, on its own thread; use it as a context manager.

    `rtt` is in seconds, `rate` in bytes a second (each way, each connection). Clients connect to `host`, `port`.
    """

    def __init__(
        self,
        rtt: float,
        upstream: tuple[str, int] | None,
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        rate: float | None = None,
        up: Sequence[Effect] = (),
        down: Sequence[Effect] = (),
        handshake: bool = True,
        buffer: int | None = None,
        window: int = WINDOW,
        seed: int | str = 0,
        on_operation: Callable[[Counts], None] | None = None,
        on_refused: Callable[[OSError], None] | None = None,
    ) -> None:
        """Prepare the proxy; `start` starts it.

        `upstream`: (host, port) of the server, or None if `relay` adds the servers. `listen`: (host, port) for clients;
        port 0 means any free port. `up`, `down`: effects on the bytes from the client and from the server. `handshake`:
        true if opening a connection costs a round trip. `buffer`: the most bytes that wait for the link, in each
        direction of each connection; for None see `filled`. `window`: the most bytes of one direction that are sent and
        not yet taken by the receiver; then the proxy stops reading from the sender. `seed`: of all random numbers.

        The proxy's thread calls `on_operation` with the counts of each operation when its last connection is closed;
        without it, only `take` ends an operation. It calls `on_refused` with the error if the server cannot be reached.
        Nothing passes during these calls, so they must not wait. If they raise, the next call raises `ProxyError`.

        Raises:
            ValueError: the link is impossible, or an effect is impossible for streams.
        """
        link = Link(rtt, rate, up, down, BUFFER if buffer is None else buffer, window, seed=seed)
        link.check_streams()
        self.link = filled(link) if buffer is None else link
        self.upstream = upstream
        self.handshake = handshake
        self.on_accepted: Callable[[int, Ends], None] | None = None
        """A function that the proxy's thread calls with (number, ends) of a connection that is counted from now on."""
        self.on_established: Callable[[int], None] | None = None
        """A function that the proxy's thread calls with the number of a connection whose handshake is over."""
        self.on_ended: Callable[[int], None] | None = None
        """A function that the proxy's thread calls with the number of a connection that has ended on both sides."""
        self.sites: Callable[[int, int], CallSites] | None = None
        """A function that the proxy's thread calls with the number of a connection and a size, after a client has sent
        that many bytes. It returns the lines of code that sent them."""
        self.host, self.port = listen
        self._on_operation = on_operation
        self._on_refused = on_refused
        self._counter = Counter()
        self._number = 0
        self._connections: set[ProxyConnection] = set()
        self._servers: list[asyncio.Server] = []
        self._doors: set[tuple[str, int]] = set()
        self._thread = ProxyThread(self._serve, lambda: DOORS.difference_update(self._doors))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if kind is None:
            self.check()

    def start(self) -> None:
        """Start to listen, and set `port` to the port in use.

        Raises:
            OSError: the proxy cannot listen on that address.
        """
        self._thread.start()

    def close(self) -> None:
        """Stop listening and close every connection, so that neither side waits. Closing twice is harmless."""
        self._thread.stop()

    def check(self) -> None:
        """Raise `ProxyError` if the proxy's thread failed."""
        self._thread.check()

    def change(self, link: Link) -> None:
        """Replace the link from now on, for open connections too. Effects that count bytes start again from 0.

        Bytes in transit are delivered as before; bytes that were held for ever are sent again. The default `buffer` is
        replaced as by `filled`.

        Raises:
            ValueError: an effect is impossible for streams.
        """
        link.check_streams()
        self._thread.ask(lambda: self._change(filled(link), also_new=True))

    def change_open(self, link: Link) -> None:
        """Replace the link as `change` does, but only for open connections, as if a router had lost their state."""
        link.check_streams()
        self._thread.ask(lambda: self._change(filled(link), also_new=False))

    def _change(self, link: Link, *, also_new: bool) -> None:
        if also_new:
            self.link = link
        for connection in list(self._connections):
            if not connection.over:
                connection.change(link)

    def relay(self, upstream: tuple[str, int], listen: tuple[str, int] = ("127.0.0.1", 0)) -> tuple[str, int]:
        """Listen for one more server over the same link, counted together. Return the address for its clients.

        Raises:
            OSError: the proxy cannot listen on that address.
        """
        return self._thread.ask_running(lambda: self._listen(upstream, listen))

    def take(self) -> Counts:
        """Return the counts of all connections since the last `take` (or the start), and begin a new operation.

        All bytes that a client has read are counted. The call also works after `close`.
        """
        return self._thread.ask(self._take)

    def counts(self) -> Counts:
        """Return the counts so far without resetting them."""
        return self._thread.ask(lambda: self._counter.counts())

    def _take(self) -> Counts:
        counts = self._counter.counts()
        self._counter = Counter()
        for connection in self._connections:
            connection.counter = self._counter
        return counts

    async def _serve(self, stopping: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        if self.upstream is not None:
            _, self.port = await self._listen(self.upstream, (self.host, self.port))
        self._thread.listening.set()
        await stopping.wait()
        # Do not close the listeners yet: a socket accepted in the same turn would be lost.
        for listener in (listener for server in self._servers for listener in server.sockets):
            loop.remove_reader(listener.fileno())
        for _ in range(TURNS):
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)
        for server in self._servers:
            server.close()
        if self._on_operation is not None and self._counter.counts().used:
            self._on_operation(self._take())

    async def _listen(self, upstream: tuple[str, int], listen: tuple[str, int]) -> tuple[str, int]:
        host, port = listen
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        loop = asyncio.get_running_loop()
        if host:  # `create_server` hides the error of an unknown name
            await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        listener = socket.create_server((host, port), family=family, backlog=128)
        self._servers.append(await loop.create_server(partial(self._accept, upstream), sock=listener))
        self._doors.add(listener.getsockname()[:2])
        DOORS.add(listener.getsockname()[:2])
        return host, listener.getsockname()[1]

    def _accept(self, upstream: tuple[str, int]) -> ProxySocket:
        if self._on_operation is not None and all(c.client.ended for c in self._connections):
            # The client has ended all its connections, so a new one begins another operation.
            self._counter = Counter()
        self._number += 1
        told = ConnectionObserver(
            self._ended, self._thread.failed, self._on_refused, self.on_accepted, self.on_established, self.sites
        )
        connection = ProxyConnection(self.link, upstream, self._number, self._counter, told, handshake=self.handshake)
        self._connections.add(connection)
        return connection.opened()

    def _ended(self, connection: ProxyConnection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        if self.on_ended is not None and connection.client.made:
            self.on_ended(connection.number)
        counter = connection.counter
        if self._on_operation is not None and all(c.counter is not counter for c in self._connections):
            if counter is self._counter:
                self._counter = Counter()
            self._on_operation(counter.counts())
