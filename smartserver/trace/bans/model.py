"""`Ban` and its view of a client's requests, each decoded once for all bans."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from smartserver.verbs.declare import AnyVerb, Arguments, Calls, Effect, Result
from smartserver.wire.messages import Fault, KnownVersion, RequestFlag, State


class WatchedRequest(msgspec.Struct):
    """A request that is about to be sent."""

    id: bytes
    path: str
    calls: Calls
    flags: RequestFlag
    known: KnownVersion | None
    number: int = 0
    """The number of requests that the client sent before this one."""
    is_repeat: bool = False
    """True if the request was sent before, under the same id."""

    @property
    def mutates(self) -> bool:
        """True if the request may change something."""
        return any(verb.effect is Effect.MUTATE for verb, _ in self.calls) and not self.flags & RequestFlag.CHECK_ONLY

    @property
    def has_body(self) -> bool:
        """True if the request has a body."""
        return bool(self.flags & RequestFlag.BODY)

    @property
    def reads(self) -> bool:
        """True if the request changes nothing and its answer has content. The answer of `Server.ping` has none."""
        return not self.mutates and any(verb.result_type.__struct_fields__ for verb, _ in self.calls)


class WatchedAnswer(msgspec.Struct):
    """The answer to a request. `results`: the result of each call, or None if it was refused. `fault`: the error of the
    whole request, or None. `body`: True if a body follows."""

    results: Sequence[Result | None]
    fault: Fault | None
    state: State | None
    body: bool = False


class Cost(enum.StrEnum):
    """The part of the cost that a client would save without the call."""

    REQUEST = "request"
    """The whole request."""
    CONNECTION = "connection"
    """The connection that was opened for the request."""
    BODY = "body"
    """Bytes of the request or of its answer."""


class Finding(NamedTuple):
    """A banned call. `why`: the reason, if it is not clear from the rule."""

    verb: str
    why: str = ""
    cost: Cost = Cost.REQUEST
    requests: tuple[int, ...] = ()
    """The numbers of the needless requests; if empty, only this request."""
    share: float = 1.0
    """The needless fraction of the body, from 0 to 1."""


class Ban:
    """A rule or behaviour, for one client. It remembers only the current operation.

    An operation is the work of one call into this package: a command of git, of brz or of smartserver. If a program
    uses the client itself, each call that it makes is an operation. A `brz` command makes many calls and is one
    operation. A request that is sent again under the same id is not a new request: only a ban by name is applied to it
    again.
    """

    name: ClassVar[str]
    """The name of the ban in a list of rules."""
    remedy: ClassVar[str] = ""
    """A sentence about a way to avoid the call."""

    def begin(self) -> None:
        """Called when a new operation begins. A ban forgets the previous one."""

    def connecting(self) -> None:
        """Called before a connection is opened."""

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Return a finding if this ban forbids the request that is to be sent, else None."""
        return None

    def sending(self, asked: WatchedRequest, chunk: bytes) -> Finding | None:
        """Return a finding if this ban forbids a chunk of the request's body, else None."""
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> Finding | None:
        """Return a finding if the answer shows that the request was needless, else None. The finding is only traced,
        because the request was already sent."""
        return None

    def ended(self) -> None:
        """Called when the body of an answer is complete."""

    def leaving(self) -> None:
        """Called when the server accepts no more requests on the connection."""


def names_in(value: object) -> Iterator[bytes | str]:
    """Yield every name and id in an argument, at any depth."""
    match value:
        case bytes() | str():
            yield value
        case list() | tuple() | set() | frozenset():
            for each in value:
                yield from names_in(each)
        case dict():
            for key, each in value.items():
                yield from names_in(key)
                yield from names_in(each)
        case msgspec.Struct():
            for field in value.__struct_fields__:
                yield from names_in(getattr(value, field))


def value_of(arguments: Arguments, field: str) -> object:
    """Return the value of an argument; None if the verb has no such field. A msgpack selector is decoded."""
    value = getattr(arguments, field, None)
    if field == "selector" and isinstance(value, bytes):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.msgpack.decode(value)
    return value


def place(path: str, name: str = "") -> str:
    """Return a path of the server in the form of rules: from its root, which is `/`, with single slashes."""
    return "/" + "/".join(part for part in f"{path}/{name}".split("/") if part)


def paths_of(path: str, verb: AnyVerb, arguments: Arguments) -> list[str]:
    """Return the paths of a call: the path of its request and, for a VFS verb, all paths in its arguments."""
    found = [place(path)]
    if verb.is_vfs:
        found += [place(path, each) for each in names_in(arguments) if isinstance(each, str)]
    return found
