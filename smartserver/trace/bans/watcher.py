"""`Watcher`: the observer that shows a client's requests to bans, before they are sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from smartserver.errors import Banned
from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest
from smartserver.trace.bans.operations import Operations, call_site
from smartserver.trace.bans.rule import Rule
from smartserver.verbs.declare import VERBS, AnyVerb, Arguments, Result
from smartserver.wire.events import Body, End, Error, Event, GoAway, PeerClosed, Reply, Request
from smartserver.wire.messages import (
    Outcome,
    RequestFlag,
    Status,
    decode_failure,
    decode_reply,
    decode_request,
)


class Watcher:
    """Sees every event of one client's connections; implements `wire.observer.Observer`.

    A finding of a ban is raised as an error in the code that makes the call, so that the call is not sent.
    """

    def __init__(self, bans: Sequence[Ban], found: Callable[[Banned], None] = lambda banned: None) -> None:
        """`found` is called with each banned call, too, because the caller may catch the error."""
        self._bans = bans
        self._found = found
        self._operations = Operations()
        self._open: dict[int, WatchedRequest] = {}
        self._parts: dict[int, list[bytes]] = {}
        self._ids: set[bytes] = set()
        self._sent = 0
        """The number of requests that were sent or refused so far."""

    def connecting(self) -> None:
        """Inform the bans before a connection is opened."""
        self._open.clear()
        self._parts.clear()
        self.same_operation()
        for ban in self._bans:
            ban.connecting()

    def sent(self, event: Event, size: int) -> None:
        """Let the bans judge an event that is about to be sent.

        Raises:
            Banned: a ban found something.
        """
        if isinstance(event, Request):
            self._ask(event)
            return
        asked = self._open.get(getattr(event, "id", 0))
        if asked is not None and isinstance(event, Body):
            for ban in self._bans:
                self.judge(ban, ban.sending(asked, event.chunk), asked)

    def received(self, event: Event, size: int) -> None:
        """Inform the bans of an event that was received."""
        if isinstance(event, (GoAway, PeerClosed)):
            for ban in self._bans:
                ban.leaving()
        asked = self._open.get(getattr(event, "id", 0))
        if asked is not None and isinstance(event, End):
            for ban in self._bans:
                ban.ended()
        if asked is None or not isinstance(event, (Reply, Error)):
            return
        parts = self._parts.setdefault(event.id, [])
        parts.append(event.payload)
        if not event.more:
            answered = _answered(asked, b"".join(self._parts.pop(event.id)), event)
            for ban in self._bans:
                self.regret(ban, ban.answered(asked, answered), asked)

    def _ask(self, event: Request) -> None:
        self._sent += 1
        message = decode_request(event.payload)
        try:
            calls = [(VERBS[call.verb], _arguments(VERBS[call.verb], call.arguments)) for call in message.calls]
        except (KeyError, msgspec.DecodeError):
            return  # No server takes it.
        again = message.id in self._ids
        self._ids.add(message.id)
        asked = WatchedRequest(
            message.id, message.path, calls, RequestFlag(message.flags), message.known, self._sent - 1, again
        )
        self._open[event.id] = asked
        self.same_operation()
        for ban in self._bans:
            if not again or isinstance(ban, Rule):
                self.judge(ban, ban.asking(asked), asked)

    def same_operation(self) -> None:
        """Inform the bans if another operation begins."""
        if self._operations.begins():
            for ban in self._bans:
                ban.begin()

    def judge(self, ban: Ban, found: Finding | None, asked: WatchedRequest) -> None:
        """Refuse to send an event in which a ban found something. Do nothing if `found` is None.

        Raises:
            Banned: the ban found something.
        """
        if found is not None:
            rule = ban.text if isinstance(ban, Rule) else ban.name
            banned = Banned(found.verb, rule, found.why, call_site())
            self._found(banned)
            for each in self._bans:
                each.leaving()  # The connection is good for nothing more.
            raise banned

    def regret(self, ban: Ban, found: Finding | None, asked: WatchedRequest) -> None:
        """Do nothing: when an answer leads to a finding, it is too late to refuse the request."""


def _arguments(verb: AnyVerb, raw: msgspec.Raw) -> Arguments:
    arguments: Arguments = msgspec.msgpack.decode(raw, type=verb.request_type)
    return arguments


def _answered(asked: WatchedRequest, payload: bytes, last: Reply | Error) -> WatchedAnswer:
    if isinstance(last, Error):
        failure = decode_failure(payload)
        return WatchedAnswer([], failure.fault, failure.state)
    reply = decode_reply(payload)
    # A reply that answers other calls than were asked is the link's to refuse.
    results = [_result(verb, outcome) for (verb, _), outcome in zip(asked.calls, reply.outcomes, strict=False)]
    return WatchedAnswer(results, None, reply.state, last.body)


def _result(verb: AnyVerb, outcome: Outcome) -> Result | None:
    if outcome.status != Status.DONE:
        return None
    try:
        result: Result = msgspec.msgpack.decode(outcome.result, type=verb.result_type)
    except msgspec.DecodeError:
        return None  # As above.
    return result
