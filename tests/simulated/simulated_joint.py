"""The real client and the real server, joined by a simulated link: one thread, a virtual clock, nothing waits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from builders import GIT, KINDS, SETTINGS, History

from netem.simulated import ServerTransport, SimulatedNetwork, SimulatedStream
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.repository import NewRepository, RemoteRepository
from smartserver.records.model import Announced, Key, RevisionId
from smartserver.server.access import Access, invoking_user
from smartserver.server.executor import InlineExecutor
from smartserver.server.session import Session
from smartserver.server.site import Site
from smartserver.wire.observer import Observer
from transports.base import Transport
from transports.memory import MemoryTransport

NEW = NewRepository(GIT, KINDS, SETTINGS)


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

    def __init__(self, transport: ServerTransport, site: Site, access: Access) -> None:
        self._transport = transport
        self._reading = True
        self._held: list[bytes] = []
        self.session = Session(site, access, self, InlineExecutor(), "simulated")
        transport.want_more = self.session.resume_writing

    def data_received(self, data: bytes) -> None:
        if self._reading:
            self.session.data_received(data)
        else:
            self._held.append(data)

    def eof_received(self) -> None:
        self.session.eof_received()

    def connection_lost(self, error: ConnectionError | None) -> None:
        self.session.connection_lost()

    def write(self, data: bytes) -> None:
        self._transport.write(data)
        if self._transport.pending() > 4 * self._transport.low_water:
            self.session.pause_writing()

    def close(self) -> None:
        self._transport.close()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        while self._held and self._reading:
            self.session.data_received(self._held.pop(0))


@dataclass
class Joint:
    """A server on a network, and clients of it."""

    network: SimulatedNetwork
    storage: Transport = field(default_factory=MemoryTransport)
    access: Access = field(default_factory=lambda: invoking_user("tester"))
    shells: list[SimulatedShell] = field(default_factory=list)
    site: Site = field(init=False)

    def __post_init__(self) -> None:
        self.site = Site(self.storage, clock=lambda: self.network.clock.now)

    def connect(self) -> StreamMedium:
        """A connection, its handshake charged."""

        def accept(transport: ServerTransport) -> SimulatedShell:
            self.shells.append(SimulatedShell(transport, self.site, self.access))
            return self.shells[-1]

        try:
            return StreamMedium(self.network.connect(accept))
        except ConnectionError as wrong:
            raise CannotConnect("the simulated server", str(wrong)) from None

    def client(self, observers: Sequence[Observer] = ()) -> Client:
        """A client on the virtual clock."""
        return Client(self.connect, observers, clock=lambda: self.network.clock.now)

    def remote(self, path: str = "project", client: Client | None = None) -> RemoteRepository:
        """A remote of which nothing is remembered."""
        return RemoteRepository(client or self.client(), path, Knowledge(None, path))


@dataclass
class HistorySource:
    """A history as a push reads it."""

    history: History
    without: frozenset[Key] = frozenset()
    planned: list[int] = field(default_factory=list)
    """How many revisions each plan had."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> HistoryPlan:
        had = self._ancestors(haves)
        wanted = self._ancestors(tips) - had
        plan = HistoryPlan(self.history, [each for each in self.history.parents if each in wanted], self.without)
        self.planned.append(len(plan.revisions))
        return plan

    def _ancestors(self, tips: Iterable[RevisionId]) -> set[RevisionId]:
        found: set[RevisionId] = set()
        todo = [tip for tip in tips if tip in self.history.parents]
        while todo:
            each = todo.pop()
            if each not in found:
                found.add(each)
                todo += self.history.parents[each]
        return found


@dataclass
class HistoryPlan:
    """Revisions of a history, parents first."""

    history: History
    revisions: list[RevisionId]
    without: frozenset[Key] = frozenset()
    change: Callable[[bytes], bytes] = lambda segment: segment
    """What a test does to each segment."""

    @property
    def graph(self) -> Sequence[Announced]:
        return [self.history.announced(each) for each in self.revisions]

    def segments(self) -> Iterator[bytes]:
        for each in self.revisions:
            yield self.change(self.history.segment(each))

    def without_bases(self, keys: Collection[Key]) -> HistoryPlan:
        return HistoryPlan(self.history, self.revisions, self.without | frozenset(keys), self.change)
