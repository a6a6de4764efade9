"""A server that says what a test tells it to, as the client's medium: the real wire, no session and no socket."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from smartserver.client.call import Caller, Client
from smartserver.client.credentials import Credentials
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import CannotConnect, ConnectionLost, Medium
from smartserver.client.repository import RemoteRepository
from smartserver.client.request import Outgoing, ProgressReport
from smartserver.client.updates import NewRepository
from smartserver.records.model import GraphNode, Key, Parent, RevisionId
from smartserver.records.varint import encode as encode_length
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionResult
from smartserver.verbs.declare import Result
from smartserver.verbs.repository_create import CreateResult
from smartserver.verbs.repository_insert_pack import InsertPackRequest, InsertPackResult, repository_insert_pack
from smartserver.verbs.server_ping import PingRequest, PingResult, server_ping
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import (
    End,
    Error,
    Event,
    Reply,
    Request,
)
from smartserver.wire.messages import Failure, Fault, Outcome, RequestFlag, State, Status, decode_request, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage
from smartserver.wire.observer import Observer
from transports.errors import CodedError

Answering = Callable[["ScriptedMedium", Event], None]


def done(*results: Result, state: State | None = None) -> bytes:
    """The payload of a reply in which each call was done."""
    outcomes = [Outcome(Status.DONE, msgspec.Raw(msgspec.msgpack.encode(result))) for result in results]
    return encode(ReplyMessage(outcomes, state))


def refused(error: CodedError, *errors: CodedError | None, state: State | None = None) -> bytes:
    """The payload of a refusal, with the error of each call."""
    outcomes = [Outcome(Status.REFUSED if each else Status.NOT_DONE, fault=_fault(each)) for each in errors]
    return encode(Failure(fault_of(error), outcomes, state))


def fault_of(error: CodedError) -> Fault:
    """An error as it travels."""
    return Fault(error.code, raw(error.wire_arguments()))


def _fault(error: CodedError | None) -> Fault | None:
    return None if error is None else fault_of(error)


class ScriptedMedium:
    """One connection; `answering` is called with each event the client sent and says what comes back."""

    def __init__(self, server: Server, answering: Answering) -> None:
        self._server = server
        self._answering = answering
        self.wire = Connection(Role.SERVER)
        self.heard: list[Event] = []
        self.closed = 0
        self.takes = server.takes
        """Bytes taken at each write."""
        self.has_refused = False
        """For a script that refuses once."""
        self._coming: list[bytes | Exception] = []
        self._ended = False

    # -- the script

    def say(self, *events: Event) -> None:
        """Send these."""
        for event in events:
            self.raw(self.wire.send(event))

    def raw(self, data: bytes) -> None:
        """Send bytes."""
        self._coming.append(data)

    def end(self) -> None:
        """Send no more."""
        self._ended = True

    def break_off(self, why: str = "Connection reset by peer") -> None:
        """The next read finds the end of the connection."""
        self._coming.append(ConnectionLost(why))

    def pass_time(self, seconds: float) -> None:
        """Have the client's clock go on."""
        self._server.now += seconds

    @property
    def request(self) -> RequestMessage:
        """The last request that came whole."""
        return decode_request([event for event in self.heard if isinstance(event, Request)][-1].payload)

    # -- the medium

    def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
        ready = read and bool(self._coming or self._ended)
        if not ready and not write:
            assert timeout is not None, "it would wait for ever"
            self._server.now += timeout
        return ready, write and self.takes > 0

    def read(self, size: int) -> bytes:
        if not self._coming:
            assert self._ended, "read without anything to read"
            return b""
        first = self._coming.pop(0)
        if isinstance(first, Exception):
            raise first
        if len(first) > size:
            self._coming.insert(0, first[size:])
        return first[:size]

    def write_some(self, data: memoryview) -> int:
        taken = bytes(data[: self.takes])
        self.wire.receive_data(taken)
        while (event := self.wire.next_event()) is not None:
            self.heard.append(event)
            self._answering(self, event)
        return len(taken)

    def close(self) -> None:
        self.closed += 1


@dataclass
class Server:
    """A server with a script for each connection; a connection beyond them is refused."""

    scripts: Sequence[Answering | Exception]
    takes: int = 1 << 30
    """Bytes a connection takes at each write."""
    now: float = 0.0
    pauses: list[float] = field(default_factory=list)
    connections: list[ScriptedMedium] = field(default_factory=list)
    tried: int = 0

    def connect(self) -> Medium:
        self.tried += 1
        if self.tried > len(self.scripts):
            raise CannotConnect("the test's server", "Connection refused")
        script = self.scripts[self.tried - 1]
        if isinstance(script, Exception):
            raise script
        self.connections.append(ScriptedMedium(self, script))
        return self.connections[-1]

    def client(
        self,
        observers: Sequence[Observer] = (),
        progress: ProgressReport | None = None,
        above: str = "",
        credentials: Credentials | None = None,
    ) -> Client:
        """A client whose time and pauses are the test's."""
        return Client(
            self.connect,
            observers,
            Caller("a test", above, credentials),
            progress=progress,
            clock=lambda: self.now,
            sleep=self.pauses.append,
        )

    @property
    def ids(self) -> list[bytes]:
        """The id of each request that came, by connection."""
        return [connection.request.id for connection in self.connections]


def reply(payload: bytes, *, body: bool = False) -> Answering:
    """Answer each request with that."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Reply(event.id, payload, body))

    return answering


def refuse(payload: bytes) -> Answering:
    """Refuse each request with that."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Error(event.id, payload))

    return answering


MAIN, TOPIC, LATE = b"refs/heads/main", b"refs/heads/topic", b"refs/heads/late"
TIP, OLD, OTHER = b"t" * 20, b"o" * 20, b"x" * 20
NEW = NewRepository("git sha1", ())
HERE = b"i" * 16


def segment(content: bytes) -> bytes:
    """A segment as long as it says, which is all that a client looks at."""
    return encode_length(len(content)) + content


@dataclass
class Planned:
    """A plan of one revision, or of none where the remote has it."""

    revisions: Sequence[RevisionId]

    @property
    def graph(self) -> Sequence[GraphNode]:
        return [GraphNode(each, (Parent(OLD),)) for each in self.revisions]

    def segments(self) -> Iterable[bytes]:
        return [segment(each) for each in self.revisions]

    def without_bases(self, keys: Collection[Key]) -> Planned:
        return self


@dataclass
class Source:
    """Keeps what it was asked."""

    haves: list[list[RevisionId]] = field(default_factory=list)

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Planned:
        self.haves.append(list(haves))
        return Planned([tip for tip in tips if tip not in self.haves[-1]])


def state(tip: bytes | None, version: int = 1) -> State:
    """A repository that has just that."""
    return State(HERE, version, None, {MAIN: raw([[tip]])} if tip else {}, vcs="git sha1")


def saying(*answers: bytes | CodedError | tuple[CodedError, State]) -> Answering:
    """One answer a request, in order: a reply, or why it is refused."""
    left = list(answers)

    def answering(medium: ScriptedMedium, event: Event) -> None:
        whole = isinstance(event, End) or (isinstance(event, Request) and not event.body)
        if not whole:
            return
        assert isinstance(event, End | Request)
        answer = left.pop(0)
        if isinstance(answer, bytes):
            medium.say(Reply(event.id, answer))
        elif isinstance(answer, tuple):
            medium.say(Error(event.id, refused(answer[0], state=answer[1])))
        else:
            medium.say(Error(event.id, refused(answer)))

    return answering


def remote(server: Server, seen: State | None = None) -> RemoteRepository:
    """The remote; `seen` is what was learnt before."""
    knowledge = Knowledge(None, "hpss://h:4155/project")
    if seen is not None:
        knowledge.learn(seen)
    return RemoteRepository(server.client(), "project", knowledge)


def requests(server: Server) -> list[list[str]]:
    """The verbs of each request."""
    heard = [event for connection in server.connections for event in connection.heard]
    payloads = [event.payload for event in heard if isinstance(event, Request)]
    return [[call[0] for call in msgspec.msgpack.decode(payload)[3]] for payload in payloads]


MADE = done(CreateResult(True), InsertPackResult(1), SetLastRevisionResult([]))


PONG = done(PingResult())


READ = Outgoing("project", [(server_ping, PingRequest())])


DELETE = Outgoing("project", [(branch_delete, BranchDeleteRequest(MAIN))])


def broken(medium: ScriptedMedium, event: Event) -> None:
    """A server that dies when the request is there."""
    if isinstance(event, Request):
        medium.break_off()


def banner(*parts: bytes) -> Answering:
    """A server that speaks something else, and closes."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            for part in parts:
                medium.raw(part)
            medium.end()

    return answering


def silent(medium: ScriptedMedium, event: Event) -> None:
    """A server that never says anything."""


def upload(pieces: int, size: int = 40_000) -> Outgoing:
    """A push of so many pieces."""
    return Outgoing(
        "project",
        [(repository_insert_pack, InsertPackRequest()), (branch_delete, BranchDeleteRequest(MAIN))],
        RequestFlag.BODY,
        body=lambda: [(b"x" * size, 1)] * pieces,
    )


UPLOADED = done(InsertPackResult(1), BranchDeleteResult([]))
