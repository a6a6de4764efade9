"""The proxy: a TCP relay that puts a link between a client and a server, in wall time, and counts what passes.

Bytes of each direction come out in order at absolute times, so errors do not add up, and what is on the way does not
wait for what is ahead of it (pipelining is kept). TCP's own behaviour over distance (slow start, Nagle, retransmission)
is not there: both sockets of a connection are on this machine.
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
"""Seconds of the rate that wait for the link at the least."""

TURNS = 6
"""Turns of the loop in which a socket that was just being accepted becomes a connection, and is lost as the others
are."""

DOORS: set[tuple[str, int]] = set()
"""The addresses on which the proxies of this process listen: connections to them are counted there."""


def filled(link: Link) -> Link:
    """The link as a proxy can fill it: with room for `REFILL` seconds of its rate, where no other buffer was chosen."""
    # On a fast link the loop must not come too late to fill it again.
    if link.rate is None or link.buffer != BUFFER:
        return link
    return replace(link, buffer=max(BUFFER, int(link.rate * REFILL)))


class Proxy:
    """A link in front of `upstream` (None: of what `relay` names), on its own thread; use it as a context manager.

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
        """Begun by `start`.

        `upstream`: (host, port) of the server, to which there is a connection for each client's; `listen`: the same for
        clients, port 0 for any free one. `up`, `down`: effects on what the client, the server sends. `handshake`:
        whether opening a connection costs a round trip; if not, all is as if it had been open. `buffer`: bytes that may
        wait for a link with a rate, in each direction of each connection; None: see `filled`. `window`: bytes of one
        direction sent and not yet taken by the receiver, at most; then the sender is no longer read from. `seed`: of
        all that happens by chance.

        The proxy's thread calls `on_operation` with the counts of each operation when its last connection is closed
        (without it, only `take` ends one), and `on_refused` with the error when the server cannot be reached. Nothing
        passes meanwhile, so they must not wait; what they raise, the next call raises as `ProxyError`.

        Raises:
            ValueError: there can be no such link, or an effect has no meaning for streams.
        """
        link = Link(rtt, rate, up, down, BUFFER if buffer is None else buffer, window, seed=seed)
        link.check_streams()
        self.link = filled(link) if buffer is None else link
        self.upstream = upstream
        self.handshake = handshake
        self.on_accepted: Callable[[int, Ends], None] | None = None
        """Told on the proxy's thread of a connection that is counted from now on: its number, and its ends."""
        self.on_established: Callable[[int], None] | None = None
        """Told there of its number when its handshake is over."""
        self.on_ended: Callable[[int], None] | None = None
        """The same, when nothing is left of it."""
        self.sites: Callable[[int, int], CallSites] | None = None
        """Asked there for all that clients send: who sent the next so many bytes on the connection of that number."""
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
        """Listen; `port` is then the real one.

        Raises:
            OSError: it cannot listen there.
        """
        self._thread.start()

    def close(self) -> None:
        """Stop listening and close every connection, so that neither side waits for the other. Twice is nothing."""
        self._thread.stop()

    def check(self) -> None:
        """Check that all is well."""
        self._thread.check()

    def change(self, link: Link) -> None:
        """Make it another link from now on, for open connections too; effects that count bytes begin anew.

        What is on the way comes out as it would have; what was held for ever is sent again. A `buffer` that is the
        default of `Link` is as great as its rate needs, as in a proxy that begins with it.

        Raises:
            ValueError: an effect has no meaning for streams.
        """
        link.check_streams()
        self._thread.ask(lambda: self._change(filled(link), also_new=True))

    def change_open(self, link: Link) -> None:
        """Change the link as `change` does, but only for connections that are open, as if a router had forgotten them.

        Raises:
            ValueError, ProxyError: as `change`.
        """
        link.check_streams()
        self._thread.ask(lambda: self._change(filled(link), also_new=False))

    def _change(self, link: Link, *, also_new: bool) -> None:
        if also_new:
            self.link = link
        for connection in list(self._connections):
            if not connection.over:
                connection.change(link)

    def relay(self, upstream: tuple[str, int], listen: tuple[str, int] = ("127.0.0.1", 0)) -> tuple[str, int]:
        """Listen for one more server, over the same link and counted together; where its clients connect.

        Raises:
            OSError: it cannot listen there.
        """
        return self._thread.ask_running(lambda: self._listen(upstream, listen))

    def take(self) -> Counts:
        """The counts since the last `take` (or the start), over all connections; a new operation begins.

        What a client has read is counted. After `close` it gives what was left.
        """
        return self._thread.ask(self._take)

    def counts(self) -> Counts:
        """Return the counts so far, and go on counting."""
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
        # Not closed yet: of one that is closed in the turn in which it accepts, the new socket is lost.
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
        if host:  # `create_server` loses what is said of a name that there is not
            await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        listener = socket.create_server((host, port), family=family, backlog=128)
        self._servers.append(await loop.create_server(partial(self._accept, upstream), sock=listener))
        self._doors.add(listener.getsockname()[:2])
        DOORS.add(listener.getsockname()[:2])
        return host, listener.getsockname()[1]

    def _accept(self, upstream: tuple[str, int]) -> ProxySocket:
        if self._on_operation is not None and all(c.client.ended for c in self._connections):
            # The client has ended all it had: what it opens now is another operation.
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
