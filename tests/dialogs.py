"""A session of the server and a client's end of the wire, joined without a medium: bytes arrive at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from builders import GIT, KINDS, SETTINGS, History, push, refs_of
from memory_transport import MemoryTransport

from smartserver.server.access import Admission, invoking_user
from smartserver.server.executor import NOBODY, Executor, InlineExecutor, Lane
from smartserver.server.fair import Tenant
from smartserver.server.session import Session
from smartserver.server.site import Site
from smartserver.store.repository import PackRepository
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_create import CreateRequest, KindField
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, Event, Reply, Request
from smartserver.wire.messages import Call, Failure, KnownVersion, RequestFlag, decode_failure, decode_reply, encode
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage
from transports.base import Transport

T = TypeVar("T")

PATH = "project"
CREATE = CreateRequest(GIT, [KindField(kind.name, kind.check, kind.base) for kind in KINDS], SETTINGS)
"""The call that makes a git repository."""


def numbered(number: int) -> bytes:
    """Return a request id."""
    return number.to_bytes(16, "big")


def message(
    *calls: tuple[AnyVerb, Arguments],
    path: str = PATH,
    request: bytes = numbered(1),
    age: int = 0,
    flags: RequestFlag = RequestFlag.NONE,
    known: KnownVersion | None = None,
) -> RequestMessage:
    """Return a request of these calls."""
    listed = [Call(verb.name, msgspec.Raw(msgspec.msgpack.encode(arguments))) for verb, arguments in calls]
    return RequestMessage(path, request, age, listed, int(flags), known)


@dataclass
class SteppedExecutor:
    """Runs work when the test says so; implements `Executor`."""

    waiting: deque[Callable[[], None]] = field(default_factory=deque)
    stopping: bool = False

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        self.waiting.append(lambda: done(work()))

    def soon(self, call: Callable[[], None]) -> None:
        call()

    def step(self) -> None:
        """Run one piece of work."""
        self.waiting.popleft()()

    def run_all(self) -> None:
        """Run all queued work, and the work that follows from it."""
        while self.waiting:
            self.step()


class Lanes(SteppedExecutor):
    """Records the lane of each piece of work."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[Lane] = []

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        self.lanes.append(lane)
        super().run(work, done, lane)


class Dialog:
    """One connection: the session, and this object as its shell and its client. The grammar checks all answers."""

    def __init__(self, site: Site, access: Admission | None = None, executor: Executor | None = None) -> None:
        self.closed = False
        self.aborted = False
        self.reading = True
        self.paused: list[bool] = []
        """Each pause (True) and resumption of reading."""
        self.raw = bytearray()
        """All bytes that the server wrote."""
        self.heard: list[Event] = []
        """All events that the server sent."""
        self.client = Connection(Role.CLIENT)
        self._last = 0
        self.session = Session(site, access or invoking_user("tester"), self, executor or InlineExecutor(), "a test")

    # -- the shell

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.raw += data
        self.client.receive_data(data)
        while (event := self.client.next_event()) is not None:
            self.heard.append(event)

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False
        self.paused.append(True)

    def resume_reading(self) -> None:
        self.reading = True
        self.paused.append(False)

    # -- the client

    def send(self, *events: Event) -> list[Event]:
        """Send these events, and return the events that the server sent meanwhile."""
        before = len(self.heard)
        for event in events:
            self.session.data_received(self.client.send(event))
        return self.heard[before:]

    def begin(self, request: RequestMessage) -> int:
        """Send a request without its body, and return its number on this connection."""
        self._last += 1
        self.send(Request(self._last, encode(request), body=bool(request.flags & RequestFlag.BODY)))
        return self._last

    def ask(self, request: RequestMessage, body: bytes = b"", segments: int = 0) -> ReplyMessage | Failure:
        """Send a request, with as much of its body as the server wants, and return the answer."""
        number = self.begin(request)
        if request.flags & RequestFlag.BODY:
            if self.answer(number) is None and body:
                self.send(Body(number, body))
            self.send(Cancel(number) if self.answer(number) else End(number, segments, len(body)))
        answer = self.answer(number)
        assert answer is not None, self.heard
        return answer

    def answer(self, number: int) -> ReplyMessage | Failure | None:
        """Return the answer to a request, or None before it came; an ERROR after the reply takes precedence."""
        parts = [event for event in self.heard if isinstance(event, (Reply, Error)) and event.id == number]
        if not parts or parts[-1].more:
            return None
        kind = type(parts[-1])
        payload = b"".join(part.payload for part in parts if type(part) is kind)
        return decode_failure(payload) if kind is Error else decode_reply(payload)

    def body(self, number: int) -> bytes:
        """Return the part of an answer's body that has come."""
        return b"".join(event.chunk for event in self.heard if isinstance(event, Body) and event.id == number)

    def ended(self, number: int) -> bool:
        """Tell whether the body of an answer is complete."""
        return any(isinstance(event, End) and event.id == number for event in self.heard)


@dataclass
class Served:
    """A site in memory, and a history whose first revisions can be put there without a client."""

    transport: Transport = field(default_factory=MemoryTransport)
    now: float = 1_800_000_000.0
    """The wall clock."""
    ticks: float = 1000.0
    """The clock that measures work."""
    history: History = field(default_factory=History)
    site: Site = field(init=False)

    def __post_init__(self) -> None:
        self.site = Site(self.transport, clock=lambda: self.ticks, wall_clock=lambda: self.now)

    def repository(self, path: str = PATH) -> PackRepository:
        return self.site.find(path).repository

    def push(self, revisions: Sequence[bytes], refs: dict[bytes, bytes | None], path: str = PATH) -> None:
        """Push without this client, as a concurrent user would."""
        push(self.repository(path), self.history, revisions, refs)

    def refs(self, path: str = PATH) -> dict[bytes, bytes]:
        """Return the refs with their tips; empty if there is no repository."""
        repository = self.repository(path)
        return refs_of(repository) if repository.exists() else {}

    def files(self) -> list[str]:
        """Return every file and folder of the site."""
        return sorted(walk(self.transport))


def walk(transport: Transport, path: str = "") -> list[str]:
    """Return every file and folder below a folder."""
    found: list[str] = []
    for name in transport.list_directory(path):
        below = f"{path}/{name}" if path else name
        found.append(below)
        if transport.stat(below).kind.name == "DIRECTORY":
            found += walk(transport, below)
    return found
