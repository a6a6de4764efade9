"""The real client and the real server, joined by a simulated link: one thread, a virtual clock, nothing waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from builders import GIT, KINDS, SETTINGS, History
from dialogs import walk

from netem.simulated import LOW_WATER, ServerTransport, SimulatedNetwork, SimulatedStream
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository
from smartserver.records.bases import Candidate, NewRecord, SegmentWriter
from smartserver.records.model import GraphNode, Key, Parent, RevisionId
from smartserver.server.access import Admission, invoking_user
from smartserver.server.executor import InlineExecutor
from smartserver.server.session import Session
from smartserver.server.site import Site
from smartserver.wire.observer import Observer
from transports.base import Transport
from transports.memory import MemoryTransport

EPOCH = 1_800_000_000.0
"""When virtual time begins."""

LOW_WATER_MARK = 4 * LOW_WATER
"""Unsent bytes at which a shell says so."""

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
        """Lose the connection, as a machine that restarts does."""
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
    """Whether anybody listens."""
    shells: list[SimulatedShell] = field(default_factory=list)
    site: Site = field(init=False)

    def __post_init__(self) -> None:
        clock = self.network.clock
        self.site = Site(self.storage, clock=lambda: clock.now, wall_clock=lambda: EPOCH + clock.now)

    def connect(self) -> StreamMedium:
        """A connection, its handshake charged."""

        def accept(transport: ServerTransport) -> SimulatedShell:
            self.shells.append(SimulatedShell(transport, self.site, self.access))
            return self.shells[-1]

        try:
            return StreamMedium(self.network.connect(accept if self.up else None))
        except ConnectionError as wrong:
            raise CannotConnect("the simulated server", str(wrong)) from None

    def client(self, observers: Sequence[Observer] = ()) -> Client:
        """A client on the virtual clock."""
        clock = self.network.clock
        return Client(self.connect, observers, clock=lambda: clock.now, sleep=clock.sleep)

    def remote(
        self, path: str = "project", client: Client | None = None, knowledge: Knowledge | None = None
    ) -> RemoteRepository:
        """A remote; nothing is remembered of it unless `knowledge` does."""
        return RemoteRepository(client or self.client(), path, knowledge or Knowledge(None, path))

    def refs(self, path: str = "project") -> dict[bytes, bytes]:
        """Ref -> tip, as they are stored; nothing where there is no repository."""
        found = self.site.find(path)
        if not found.exists:
            return {}
        return {name: value[0].id for name, value in found.repository.snapshot().state.refs().items()}

    def tree(self) -> list[str]:
        """Every file and folder of the store."""
        return walk(self.storage)


@dataclass
class HistorySource:
    """A history as a push reads it."""

    history: History
    planned: list[int] = field(default_factory=list)
    """How many revisions each plan had."""
    bases: dict[bytes, Key] = field(default_factory=dict)
    """Path -> the delta base its record has in a plan that may use it, whatever it is; others then have none."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> HistoryPlan:
        had = self.history.ancestors(haves)
        wanted = self.history.ancestors(tips) - had
        plan = HistoryPlan(self.history, [each for each in self.history.parents if each in wanted], self.bases)
        self.planned.append(len(plan.revisions))
        return plan


@dataclass
class HistoryPlan:
    """Revisions of a history, parents first."""

    history: History
    revisions: list[RevisionId]
    bases: Mapping[bytes, Key] = field(default_factory=dict)
    without: frozenset[Key] = frozenset()

    @property
    def graph(self) -> Sequence[GraphNode]:
        return [self.history.announced(each) for each in self.revisions]

    def segments(self) -> Iterator[bytes]:
        usable = {path: key for path, key in self.bases.items() if key not in self.without}
        for each in self.revisions:
            if self.bases or self.without:
                yield segment_on(self.history, each, usable)
            else:
                yield self.history.segment(each)

    def without_bases(self, keys: Collection[Key]) -> HistoryPlan:
        return HistoryPlan(self.history, self.revisions, self.bases, self.without | frozenset(keys))


def segment_on(history: History, revision: RevisionId, bases: Mapping[bytes, Key]) -> bytes:
    """A revision's segment in which a path's record has the base named here, and no other record has one."""
    writer = SegmentWriter(KINDS, bulk=False, texts=lambda _kind, key: history.objects[key].text)
    items = []
    for key, path in history.introduced[revision]:
        record = history.objects[key]
        candidates = [Candidate(bases[path])] if path in bases else []
        items.append(NewRecord(0, key, record.meta, record.text, candidates, path))
    return writer.segment(revision, [Parent(each) for each in history.parents[revision]], items)
