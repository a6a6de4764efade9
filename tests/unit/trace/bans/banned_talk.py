"""A client with bans that talks to a server that answers as a test likes, by its real verbs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from smartserver.trace.bans.every import bans
from smartserver.trace.bans.watcher import Watcher
from smartserver.verbs.declare import Arguments, Result
from smartserver.wire import messages
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, End, Error, Event, Reply, Request
from smartserver.wire.messages import Call, Failure, Fault, Outcome, RequestFlag, State, Status, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import Request as RequestMessage
from transports.errors import CodedError

INCARNATION = b"i" * 16


class Talk:
    """One client; its requests are one operation in a test that says so (`operations.one_operation`)."""

    def __init__(self, *rules: str) -> None:
        self.watcher = Watcher(bans(rules))
        self._ids = itertools.count(1)
        self._numbers = itertools.count(1)
        self.connect()

    def connect(self) -> None:
        """Open a connection, and let go of the one before."""
        self.watcher.connecting()
        self._client = Connection(Role.CLIENT, [self.watcher])
        self._server = Connection(Role.SERVER)
        self._numbers = itertools.count(1)

    def ask(
        self,
        *calls: tuple[str, Arguments],
        path: str = "project",
        known: int | None = None,
        flags: RequestFlag = RequestFlag.NONE,
        again: bytes | None = None,
    ) -> int:
        """Send a request; its number. `known`: the version it knows. `again`: the id of one that is sent again."""
        listed = [Call(name, msgspec.Raw(msgspec.msgpack.encode(arguments))) for name, arguments in calls]
        number = next(self._numbers)
        message = RequestMessage(
            path,
            again or next(self._ids).to_bytes(16, "big"),
            0,
            listed,
            int(flags),
            None if known is None else messages.KnownVersion(INCARNATION, known),
        )
        self.up(Request(number, encode(message), bool(flags & RequestFlag.BODY)))
        return number

    def up(self, *events: Event) -> None:
        """The client sends these."""
        for event in events:
            self._server.receive_data(self._client.send(event))
        while self._server.next_event() is not None:
            pass

    def down(self, *events: Event) -> None:
        """The server sends these."""
        for event in events:
            self._client.receive_data(self._server.send(event))
        while self._client.next_event() is not None:
            pass

    def answer(
        self, number: int, *results: Result | None, version: int | None = None, tips: Sequence[bytes] = ()
    ) -> None:
        """Each call was done, or refused where there is no result; `version` and `tips`: the state that comes along."""
        outcomes = [
            Outcome(Status.REFUSED, fault=Fault("no-such-branch", raw({})))
            if each is None
            else Outcome(Status.DONE, msgspec.Raw(msgspec.msgpack.encode(each)))
            for each in results
        ]
        refs = {b"main": raw([[tip] for tip in tips])} if tips else {}
        state = None if version is None else State(INCARNATION, version, None, refs)
        self.down(Reply(number, encode(ReplyMessage(outcomes, state))))

    def refuse(self, number: int, error: CodedError) -> None:
        """Nothing changed."""
        self.down(Error(number, encode(Failure(Fault(error.code, raw(error.wire_arguments()))))))

    def done(
        self,
        *calls: tuple[str, Arguments],
        results: Sequence[Result | None],
        version: int | None = None,
        tips: Sequence[bytes] = (),
        path: str = "project",
        known: int | None = None,
    ) -> None:
        """Ask, and be answered."""
        self.answer(self.ask(*calls, path=path, known=known), *results, version=version, tips=tips)

    def body(self, number: int, content: bytes, segments: int = 1) -> None:
        """Send a body whole."""
        self.up(Body(number, content), End(number, segments, len(content)))
