"""A request, and its result: an answer, or a refusal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from smartserver.errors import AccessDenied, NotDone
from smartserver.verbs.declare import AnyVerb, Arguments, Effect, Result
from smartserver.wire.messages import Advice, Counters, KnownVersion, RequestFlag, State
from transports.errors import CodedError

BodySource = Callable[[], Iterable[tuple[bytes, int]]]
"""A function that generates the body again for each sending: pieces, each with the number of segments that end in
it."""

ProgressReport = Callable[[str, int, int], None]
"""A function that is called with the phase, the amount done and the total amount (0 if unknown)."""


class Outgoing(msgspec.Struct, frozen=True):
    """A request to be sent: calls on one repository, all in one round trip."""

    path: str
    calls: Sequence[tuple[AnyVerb, Arguments]]
    flags: RequestFlag = RequestFlag.NONE
    known: KnownVersion | None = None
    body: BodySource | None = None
    options: Sequence[str] = ()
    """Push options, for the hooks of the server."""
    id: bytes = msgspec.field(default_factory=lambda: os.urandom(16))

    @property
    def repeatable(self) -> bool:
        """True if repeating the request is safe. The server keeps no log of file-level changes."""
        return not (self.mutates and any(verb.is_vfs for verb, _ in self.calls))

    @property
    def mutates(self) -> bool:
        """True if the request may change something."""
        return any(verb.effect is Effect.MUTATE for verb, _ in self.calls) and not self.flags & RequestFlag.CHECK_ONLY


class Refusal(Exception):
    """The server refused a request and changed nothing. `outcomes` has the error of each call, `state` the state of the
    repository."""

    def __init__(self, error: CodedError, outcomes: Sequence[CodedError | None], state: State | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.outcomes = outcomes
        self.state = state

    @property
    def reason(self) -> CodedError:
        """The error of the first call that was itself refused, which is more specific than the error of the request."""
        return next(
            (error for error in self.outcomes if error is not None and not isinstance(error, NotDone)), self.error
        )

    @property
    def of_tokens(self) -> list[AccessDenied]:
        """The errors that a request with another token may avoid."""
        errors = (self.error, *self.outcomes)
        return [error for error in errors if isinstance(error, AccessDenied) and error.token]


class Answer(msgspec.Struct):
    """The answer to a request. `results` has the result or the error of each call."""

    results: list[Result | CodedError]
    state: State | None
    counters: Counters
    capabilities: list[str]
    body: Iterator[bytes]
    """The body, which is received as it is read."""
    advice: Sequence[Advice] = ()
    """Messages of the server for the user."""


class NotOurProtocol(Exception):
    """The peer speaks another version of the protocol."""
