"""`Client`: calls verbs on a server. It sends requests one after another over one connection. A request without an
answer is sent again as a repeat. For a change the caller learns the result, or that the outcome is unknown."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from smartserver.client.certainty import Certainty
from smartserver.client.credentials import NoToken
from smartserver.client.link import Link
from smartserver.client.medium import Medium, MediumError
from smartserver.client.request import Answer, NotOurProtocol, Outgoing, ProgressReport, Refusal
from smartserver.client.retry import PAUSES, may_help
from smartserver.errors import TOKEN_REFUSED, AccessDenied, OutcomeUnknown
from smartserver.meters import CONNECTIONS, here
from smartserver.spans import Part, span
from smartserver.verbs.declare import Arguments, Result, Verb
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.messages import RequestFlag
from smartserver.wire.observer import Observer
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.client.credentials import Credentials
    from smartserver.client.held import Holder

RequestT = TypeVar("RequestT", bound=Arguments)
ResultT = TypeVar("ResultT", bound=Result)


class Caller(NamedTuple):
    """The program that sends requests, and its user."""

    agent: str = ""
    """The program's name and release."""
    above: str = ""
    """The name that errors use for the served folder (`errors.known_as`)."""
    credentials: Credentials | None = None
    """The source of the token that identifies the user."""
    holder: Holder | None = None
    """The keeper of the connection between commands; None to close the connection."""
    traceparent: str = ""
    """The trace that requests belong to (W3C Trace Context); the server then reports the times that it spent."""


NOBODY = Caller()


class Client:
    """Sends requests over one connection. It opens the connection at the first request, and again after the connection
    has failed."""

    def __init__(
        self,
        connect: Callable[[], Medium],
        observers: Sequence[Observer] = (),
        caller: Caller = NOBODY,
        *,
        progress: ProgressReport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connect = connect
        self._observers = tuple(observers)
        self._caller = caller
        self.progress = progress
        self._clock = clock
        self._sleep = sleep
        self._link: Link | None = None
        self.connections = 0
        """The number of connections opened so far."""
        self._token: str | None = None
        """The token of each request; None until it was looked up."""
        self._is_new = False
        """True if the token was returned by `Credentials.ask`."""
        self._is_taken = False
        """True if the server accepted the token from `Credentials.ask`, and `close` must still store it."""
        self._has_answered = False
        """True if the server answered a request, of this command or of an earlier one on a held connection."""
        self._has_none = False
        """True if `Credentials.ask` found no token."""

    def call(self, verb: Verb[RequestT, ResultT], arguments: RequestT, path: str = "") -> ResultT:
        """Call one verb and return its result.

        Raises:
            CodedError: an error that the verb declares.
            OutcomeUnknown: as in `request`.
            MediumError, RemoteProtocolError, NotOurProtocol: there was no answer.
        """
        try:
            answer = self.request(Outgoing(path, [(verb, arguments)]))
        except Refusal as refusal:
            raise refusal.error from None
        result = answer.results[0]
        if isinstance(result, CodedError):
            raise result
        return cast("ResultT", result)

    def request(self, outgoing: Outgoing) -> Answer:
        """Send a request and wait for its answer; the body of the answer is left unread.

        Raises:
            Refusal: the server changed nothing.
            OutcomeUnknown: the change may have been made, but no valid answer was received. Its repeats got no answer
                either, or were refused.
            MediumError, RemoteProtocolError, NotOurProtocol: there was no answer, and no change was made.
        """
        caller = self._caller
        pauses = iter(PAUSES)
        certainty = Certainty.UNMADE
        first: float | None = None
        lost: Exception | None = None
        asked = False
        while True:
            link: Link | None = None
            try:
                # A request that is lost on a held connection is sent again, so it must be safe to repeat.
                link = self._ready(resume=lost is None and (outgoing.repeatable or not outgoing.mutates))
                now = self._clock()
                # Connecting takes time too, but a request is a repeat only when it was sent before.
                age = 0 if first is None else max(1, int((now - first) * 1000))
                if not outgoing.repeatable:
                    age = 0  # It is sent again only if no earlier sending was read, so it never is a repeat.
                first = now if first is None else first
                answer = link.exchange(outgoing, age, caller.agent, self._known_token(), caller.traceparent)
                self._has_answered = True
                self._is_taken = self._is_taken or self._is_new
                if certainty.doubtful:
                    answer.results = [
                        _as_unknown(result) if isinstance(result, CodedError) else result for result in answer.results
                    ]
                return answer
            except (MediumError, RemoteProtocolError, NotOurProtocol) as error:
                perhaps_read = outgoing.mutates and link is not None and link.perhaps_read
                self._drop()
                certainty = certainty.after(error, perhaps_read=perhaps_read)
                doubtful, repeatable = certainty.doubtful, outgoing.repeatable
                helps = may_help(error, lost=lost is not None, doubtful=doubtful, repeatable=repeatable)
                stale = link is not None and link.resumed
                again = (0.0 if stale else next(pauses, None)) if helps else None
                if lost is None or (isinstance(lost, MediumError) and not isinstance(error, MediumError)):
                    lost = error  # A broken rule of the protocol says more than a broken connection.
                if again is None:
                    if certainty.doubtful:
                        raise certainty.doubt(str(lost)) from lost
                    raise lost from None
                self._pause(again)
            except Refusal as refusal:
                self._has_answered = True
                denied = refusal.of_tokens
                if not denied:
                    self._is_taken = self._is_taken or self._is_new
                elif caller.credentials is not None and self._has_another(caller.credentials, denied, ask=not asked):
                    # The server did nothing. The next sending is a repeat only if an earlier one was lost.
                    asked, first = True, None if lost is None else first
                    continue
                # A request with a large body is not retried automatically.
                small = not outgoing.flags & RequestFlag.GRAPH_FIRST
                again = next(pauses, None) if refusal.error.retryable and small else None
                if again is None:
                    if certainty.doubtful:
                        raise _as_unknown(refusal.reason) from refusal
                    raise
                self._pause(again)
            except BaseException as error:
                self._drop()
                if certainty.doubtful and isinstance(error, Exception):
                    # The body could not be made again. That says nothing of the earlier sending.
                    raise certainty.doubt(f"{lost}; it could not be sent again: {error}") from error
                raise

    def _pause(self, seconds: float) -> None:
        with span(Part.LINK, "pause before another try"):
            self._sleep(seconds)

    def _known_token(self) -> str:
        """Return the token to send with a request; empty if none is known."""
        if self._token is None:
            credentials = self._caller.credentials
            self._token = "" if credentials is None else credentials.token()
        return self._token

    def _has_another(self, credentials: Credentials, denied: Sequence[AccessDenied], *, ask: bool) -> bool:
        """Replace the refused token by the result of `credentials.ask`, if `ask` is True. Return False if there is no
        other token. If the credentials give a reason, it is added to the errors in `denied`."""
        if any(refusal.token == TOKEN_REFUSED for refusal in denied):
            credentials.reject()
        self._token, self._is_new, self._is_taken = "", False, False
        if not ask or self._has_none:
            return False
        try:
            self._token, self._is_new = credentials.ask(), True
        except NoToken as none:
            self._has_none = True
            for refusal in denied:
                refusal.why = f"{refusal.why}; {none}"
        return self._is_new

    def _ready(self, *, resume: bool) -> Link:
        if self._link is None or not self._link.usable:
            self._drop()
            found = None
            holder = self._caller.holder
            if holder is not None and resume:
                with span(Part.CONNECT, "agent"):
                    found = holder.take()
            if found is None:
                for observer in self._observers:
                    observer.connecting()
                with span(Part.CONNECT):
                    medium = self._connect()
                here.tally[CONNECTIONS] += 1
            else:
                medium = found.medium
                self._has_answered = True
            self.connections += 1
            above, answered = self._caller.above, self._has_answered
            self._link = Link(medium, self._observers, self.progress, self._clock, above, found, has_answered=answered)
        return self._link

    def close(self) -> None:
        """Close the connection, or pass it to the holder for other commands. The next request uses a new one. Store a
        token that the server accepted."""
        credentials, holder = self._caller.credentials, self._caller.holder
        if self._is_taken and credentials is not None:
            self._is_taken = False
            with contextlib.suppress(OSError):
                credentials.approve()
        with span(Part.CONNECT, "close"):
            if self._link is not None and holder is not None:
                self._link.leave(holder)
            self._drop()

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _as_unknown(error: CodedError) -> OutcomeUnknown:
    """Return the error for a refused repeat of a change whose first sending may still be carried out."""
    return error if isinstance(error, OutcomeUnknown) else OutcomeUnknown(f"sent again, it was refused: {error}")
