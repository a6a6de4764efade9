"""The real client and the real server, joined by a simulated link: one thread, a virtual clock, and no real waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from builders import refs_of
from dialogs import walk
from memory_transport import MemoryTransport

from netem.simulated import LOW_WATER, ServerTransport, SimulatedNetwork, SimulatedStream
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.repository import RemoteRepository
from smartserver.server.access import Admission, invoking_user
from smartserver.server.executor import InlineExecutor
from smartserver.server.session import Session
from smartserver.server.site import Site
from smartserver.wire.frames import HEADER
from smartserver.wire.observer import Observer
from transports.base import Transport

EPOCH = 1_800_000_000.0
"""The time at which virtual time begins."""

LOW_WATER_MARK = 4 * LOW_WATER
"""Bytes that may stay unsent before the shell pauses its session."""


def frames(content: bytes) -> Iterator[int]:
    """Yield the positions at which the opening line, each frame's header and each frame end."""
    at = content.index(b"\n") + 1
    yield at
    while at < len(content):
        size = HEADER.unpack_from(content, at)[0]
        yield at + HEADER.size
        at += HEADER.size + size
        yield at


class StreamMedium:
    """A simulated stream as the client's medium."""

    def __init__(self, stream: SimulatedStream) -> None:
        self._stream = stream

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        try:
            return self._stream.poll(read, write, timeout)
        except ConnectionError as wrong:
            raise ConnectionLost(str(wrong)) from None

    def read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except ConnectionError as wrong:
            raise ConnectionLost(str(wrong)) from None

    def write_some(self, data: memoryview) -> int:
        try:
            return self._stream.write_some(data)
        except ConnectionError as wrong:
            raise ConnectionLost(str(wrong)) from None

    def close(self) -> None:
        self._stream.close()


class SimulatedShell:
    """The server's end of a simulated connection: shell of a session, and protocol of the network."""

    def __init__(self, transport: ServerTransport, site: Site, access: Admission) -> None:
        self._transport = transport
        self._reading = True
        self._held: deque[bytes] = deque()
        self._ended = False
        self.session = Session(site, access, self, InlineExecutor(), "simulated")
        transport.want_more = self.session.resume_writing

    def data_received(self, data: bytes) -> None:
        if self._reading:
            self.session.data_received(data)
        else:
            self._held.append(data)

    def eof_received(self) -> None:
        self._ended = True
        if not self._held:
            self.session.eof_received()

    def connection_lost(self, error: ConnectionError | None) -> None:
        self.session.connection_lost()

    def write(self, data: bytes) -> None:
        self._transport.write(data)
        if self._transport.pending() > LOW_WATER_MARK:
            self.session.pause_writing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """Lose the connection, as by a restart of the machine."""
        self._transport.abort()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        while self._held and self._reading:
            self.session.data_received(self._held.popleft())
        if self._ended and not self._held:
            self.session.eof_received()


@dataclass
class Joint:
    """A server on a network, and clients of it."""

    network: SimulatedNetwork
    storage: Transport = field(default_factory=MemoryTransport)
    access: Admission = field(default_factory=lambda: invoking_user("tester"))
    up: bool = True
    """True while the server listens."""
    shells: list[SimulatedShell] = field(default_factory=list)
    site: Site = field(init=False)

    def __post_init__(self) -> None:
        clock = self.network.clock
        self.site = Site(self.storage, clock=lambda: clock.now, wall_clock=lambda: EPOCH + clock.now)

    def connect(self) -> StreamMedium:
        """Open a connection, with the time of its handshake."""

        def accept(transport: ServerTransport) -> SimulatedShell:
            self.shells.append(SimulatedShell(transport, self.site, self.access))
            return self.shells[-1]

        try:
            return StreamMedium(self.network.connect(accept if self.up else None))
        except ConnectionError as wrong:
            raise CannotConnect("the simulated server", str(wrong)) from None

    def client(self, observers: Sequence[Observer] = ()) -> Client:
        """Return a client on the virtual clock."""
        clock = self.network.clock
        return Client(self.connect, observers, clock=lambda: clock.now, sleep=clock.sleep)

    def remote(
        self, path: str = "project", client: Client | None = None, knowledge: Knowledge | None = None
    ) -> RemoteRepository:
        """Return a remote; it remembers nothing unless `knowledge` does."""
        return RemoteRepository(client or self.client(), path, knowledge or Knowledge(None, path))

    def refs(self, path: str = "project") -> dict[bytes, bytes]:
        """Return the stored refs with their tips; empty if there is no repository."""
        found = self.site.find(path)
        return refs_of(found.repository) if found.exists else {}

    def tree(self) -> list[str]:
        """Return every file and folder of the store."""
        return walk(self.storage)
