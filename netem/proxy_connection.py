"""One connection through the proxy: the client's socket, the one made for it to the server, and how both end.

The kernel accepts a client at once, so its handshake is charged here: what it sends in the first round trip is held
until that is over, and the server hears of it half a round trip later. A reset by one side, like a cut, is a reset of
the other once it has what came out before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from netem.callsites import CallSites
from netem.counter import Counter
from netem.link import Link
from netem.proxy_socket import ProxySocket
from netem.units import NANOSECONDS

Address = tuple[str, int]

Ends = tuple[Address, Address]
"""Of one connection: where the client is, and where it is connected to. A later one may have the same."""


@dataclass(frozen=True)
class Told:
    """Who hears of what happens to a connection, on the proxy's thread."""

    ended: Callable[[ProxyConnection], None]
    """Nothing of it is left."""
    failed: Callable[[BaseException], None]
    """A bug of ours."""
    refused: Callable[[OSError], None] | None = None
    """There is no server."""
    accepted: Callable[[int, Ends], None] | None = None
    """The connection of that number is counted from now on; these are the ends of the client's."""
    established: Callable[[int], None] | None = None
    """Its handshake is over: it is open, or refused."""
    sites: Callable[[int, int], CallSites] | None = None
    """Says who sent the next so many bytes of the client of that number."""


class ProxyConnection:
    """One connection of the client, and the one made for it to `upstream`."""

    def __init__(
        self, link: Link, upstream: Address, number: int, counter: Counter, told: Told, *, handshake: bool
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.link = link
        self.number = number
        self.counter = counter
        self.over = False
        self._upstream = upstream
        self._told = told
        self._handshake = handshake
        self.client = ProxySocket(self, up=True)
        self.server = ProxySocket(self, up=False)
        self.client.peer, self.server.peer = self.server, self.client
        self._task: asyncio.Task[None] | None = None
        self._opening: Counter | None = counter if handshake else None

    def opened(self) -> ProxySocket:
        """The kernel has accepted a client: charge the handshake and find the server."""
        now = int(self.loop.time() * NANOSECONDS)
        self.counter.opened(self.number, now, handshake=self._handshake)
        if self._handshake:
            self.client.not_before = now + self.link.round_trip
            # A server hears of a connection with the third packet, half a round trip after the client does.
            self.server.not_before = self.client.not_before + self.link.one_way(up=True)
        self._task = self.loop.create_task(self._connect(now))
        self._task.add_done_callback(self._connected)
        return self.client

    async def _connect(self, begun: int) -> None:
        host, port = self._upstream
        if self._handshake:
            await self._until(begun + self.link.one_way(up=True))
        try:
            await self.loop.create_connection(lambda: self.server, host, port)
        except OSError as error:
            if self._told.refused is not None:
                self._told.refused(error)
            if self._handshake:
                await self._until(begun + self.link.round_trip)
            self._established()
            self.close()

    def _connected(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._told.failed(error)

    def accepted(self) -> None:
        """The client's end is there, and counted."""
        if self._told.accepted is not None:
            client, here = map(self.client.transport.get_extra_info, ("peername", "sockname"))
            self._told.accepted(self.number, (client[:2], here[:2]))
        self.loop.call_at(self.client.not_before / NANOSECONDS, self._established)

    def _established(self) -> None:
        """A round trip after it was opened: only now would the client know. Counted where the opening was."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.established(self.number, int(self.loop.time() * NANOSECONDS))
            if self._told.established is not None and self.client.made:
                self._told.established(self.number)

    def sites(self, size: int) -> Callable[[], CallSites] | None:
        """Who sent the next `size` bytes of the client, if there is one who knows."""
        if self._told.sites is None:
            return None
        found = self._told.sites(self.number, size)
        return lambda: found

    async def _until(self, when: int) -> None:
        await asyncio.sleep(max(0.0, when / NANOSECONDS - self.loop.time()))

    def change(self, link: Link) -> None:
        """Go on over another link."""
        self.link = link
        self.client.change()
        self.server.change()

    def close(self) -> None:
        """Both directions have ended, or there is no server: close what is open."""
        self.over = True
        for end in (self.client, self.server):
            end.forget()
            if end.made and not end.lost:
                end.transport.close()
        self.check_over()

    def reset(self) -> None:
        """The connection is lost: reset what is open, each side as soon as it has what came out for it."""
        self.over = True
        for end in (self.client, self.server):
            end.forget()
            end.reset()
        self.check_over()

    def abort(self) -> None:
        """Lose both sides now."""
        self.over = True
        if self._task is not None:
            self._task.cancel()
        self._opening = None
        for end in (self.client, self.server):
            end.forget()
            if end.made and not end.lost:
                end.transport.abort()

    def check_over(self) -> None:
        """Tell the proxy when nothing of it is left."""
        if self.client.lost and (self.server.lost or not self.server.made):
            if not self.server.made and self._task is not None and not self._task.done() and not self.over:
                return  # the client is gone before the server was reached: it still gets what was sent
            self.over = True
            self._established()  # it was to be told of before its end
            self._told.ended(self)
