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
    """A request that is going to be sent."""

    id: bytes
    path: str
    calls: Calls
    flags: RequestFlag
    known: KnownVersion | None
    number: int = 0
    """The number of requests that the client sent before it."""
    is_repeat: bool = False
    """True if it was sent before, under the same id."""

    @property
    def mutates(self) -> bool:
        """True if it may change something."""
        return any(verb.effect is Effect.MUTATE for verb, _ in self.calls) and not self.flags & RequestFlag.CHECK_ONLY

    @property
    def has_body(self) -> bool:
        """True if a body goes with it."""
        return bool(self.flags & RequestFlag.BODY)

    @property
    def reads(self) -> bool:
        """True if it changes nothing, and its answer says something: that of `Server.ping` only that it came."""
        return not self.mutates and any(verb.result_type.__struct_fields__ for verb, _ in self.calls)


class WatchedAnswer(msgspec.Struct):
    """The answer to a request: the result of each call, or None where it was refused; `fault`: of the whole request;
    `body`: whether one follows.
    """

    results: Sequence[Result | None]
    fault: Fault | None
    state: State | None
    body: bool = False


class Cost(enum.StrEnum):
    """The part of the cost that a client would save without the call."""

    REQUEST = "request"
    """The whole request."""
    CONNECTION = "connection"
    """The connection that was opened for it."""
    BODY = "body"
    """Bytes of it or of its answer."""


class Finding(NamedTuple):
    """A call that is banned, and why where the rule does not say it."""

    verb: str
    why: str = ""
    cost: Cost = Cost.REQUEST
    requests: tuple[int, ...] = ()
    """The numbers of the needless requests; empty: this one alone."""
    share: float = 1.0
    """The part of the body that was needless."""


class Ban:
    """A rule or behaviour, of one client; what it remembers is of one operation.

    An operation is what one call into this package does: a command of git, of brz or of ours, and where a program uses
    the client itself, each call it makes (a `brz` command makes many, and is one operation). A request that is sent
    again under its id is no other request: only what is banned by name is banned once more.
    """

    name: ClassVar[str]
    """Its name in a list of rules."""
    remedy: ClassVar[str] = ""
    """A sentence that says what to do about it."""

    def begin(self) -> None:
        """Another operation begins: forget the one before."""

    def connecting(self) -> None:
        """A connection is going to be opened."""

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """This is going to be sent: what of it is banned."""
        return None

    def sending(self, asked: WatchedRequest, chunk: bytes) -> Finding | None:
        """So are these bytes of its body."""
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> Finding | None:
        """This came of it: what the answer shows to have been needless. It is noted in traces; a ban comes too late."""
        return None

    def ended(self) -> None:
        """The body of an answer is whole."""

    def leaving(self) -> None:
        """No more requests are taken on this connection."""


def names_in(value: object) -> Iterator[bytes | str]:
    """Every name and id in an argument, however deep."""
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
    """The value of an argument; None if the verb has no such field. A msgpack selector is decoded."""
    value = getattr(arguments, field, None)
    if field == "selector" and isinstance(value, bytes):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.msgpack.decode(value)
    return value


def place(path: str, name: str = "") -> str:
    """A path of the server as rules see it: from its root, which is `/`, each part after one slash."""
    return "/" + "/".join(part for part in f"{path}/{name}".split("/") if part)


def paths_of(path: str, verb: AnyVerb, arguments: Arguments) -> list[str]:
    """The paths a call is about: that of its request, and of a VFS verb every one in its arguments."""
    found = [place(path)]
    if verb.is_vfs:
        found += [place(path, each) for each in names_in(arguments) if isinstance(each, str)]
    return found
