"""A remote repository whose server says what a test tells it to, and what is pushed to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from scripted import Answering, ScriptedMedium, Server, done, refused

from smartserver.client.knowledge import Knowledge
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository
from smartserver.records.model import GraphNode, Key, Parent, RevisionId
from smartserver.records.varint import encode as encode_length
from smartserver.verbs.branch_set_last_revision import SetLastRevisionResult
from smartserver.verbs.repository_create import CreateResult
from smartserver.verbs.repository_insert_pack import InsertPackResult
from smartserver.wire.events import End, Error, Event, Reply, Request
from smartserver.wire.messages import State, raw
from transports.errors import CodedError

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
