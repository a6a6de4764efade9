"""Decodes the payload of a request into calls, all of them known and valid, and encodes an error as a fault.

Every combination of calls and flags that is refused is in one table, `FORBIDDEN`.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from smartserver.errors import (
    AccessDenied,
    Banned,
    Cancelled,
    CorruptFile,
    InternalError,
    LimitExceeded,
    NoSuchRepository,
    RepositoryChanged,
    Unsupported,
)
from smartserver.store.commit import PlanRefused
from smartserver.verbs.declare import VERBS, AnyVerb, Arguments, Body, Effect
from smartserver.verbs.vfs import BringRequest
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_CALLS, MAX_FILE_CALLS, MAX_PUSH_OPTIONS
from smartserver.wire.messages import PUSH_OPTIONS, Call, Fault, Outcome, Request, RequestFlag, decode_request, raw
from transports.errors import CodedError, TransportError

log = logging.getLogger("smartserver")

ALWAYS = (
    AccessDenied,
    Banned,
    Cancelled,
    CorruptFile,
    LimitExceeded,
    NoSuchRepository,
    RepositoryChanged,
    TransportError,
)
"""Errors that any verb may raise: a damaged, missing or recreated repository, a user without permission, a banned call,
a client that has disconnected, a store that fails, and the limits of a request."""

BULK = RequestFlag.BULK

REQUEST_ID = 16
"""The number of bytes of a request's id."""


_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})")
"""The field `traceparent` of W3C Trace Context, version 0: a trace's id, a span's id, and flags."""

SAMPLED = 1
"""A bit of the flags: the trace is recorded."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """A request without its body: its calls are all known and its arguments all valid."""

    message: Request
    calls: tuple[tuple[AnyVerb, Arguments], ...]
    flags: RequestFlag
    push_options: tuple[str, ...] = ()
    """Texts that the client sends for hooks."""

    @property
    def mutates(self) -> bool:
        """True if a verb of the request makes changes. With `CHECK_ONLY`, none are made."""
        return any(verb.effect is Effect.MUTATE for verb, _ in self.calls)

    @property
    def size(self) -> int:
        """The number of calls in the request."""
        return len(self.calls)

    @property
    def id_size(self) -> int:
        """The size of the request's id in bytes."""
        return len(self.message.id)

    @property
    def long(self) -> bool:
        """True if the request may take minutes."""
        return bool(self.longs)

    @property
    def longs(self) -> list[str]:
        """The verbs that may take minutes."""
        return [verb.name for verb, _ in self.calls if verb.long]

    @property
    def alone(self) -> list[str]:
        """The verbs that must be the only call of their request."""
        return [verb.name for verb, _ in self.calls if verb.alone]

    @property
    def plain(self) -> list[str]:
        """The verbs that are not file-level verbs."""
        return [verb.name for verb, _ in self.calls if not verb.is_vfs]

    @property
    def is_vfs(self) -> bool:
        """True if the calls are of file-level verbs. A valid request has only such calls, or none."""
        return any(verb.is_vfs for verb, _ in self.calls)

    @property
    def ups(self) -> int:
        """The number of calls that send segments in the body."""
        return sum(verb.body is Body.UP for verb, _ in self.calls)

    @property
    def downs(self) -> int:
        """The number of calls whose result has a body."""
        return sum(verb.body is Body.DOWN for verb, _ in self.calls)

    @property
    def orders(self) -> list[str]:
        """The extra fields that a server must obey or refuse. Their names begin with `!`."""
        return [key for key in self.message.extras if key.startswith("!")]

    @property
    def has_wrong_body(self) -> bool:
        """True if the flag BODY is set without a call that has a body, or missing with such a call. A check may leave
        its body out. A body that no verb accepts must be refused, because it would be stored without a check of
        permissions."""
        if self.is_vfs:
            return bool(self.flags & RequestFlag.BODY) != bool(self.brought)
        left_out = self.ups and self.flags & RequestFlag.CHECK_ONLY
        return bool(self.flags & RequestFlag.BODY) != bool(self.ups) and not left_out

    @property
    def wants_spans(self) -> bool:
        """True if the client records a trace: its `traceparent` (W3C Trace Context) has the flag `sampled`."""
        found = self._traceparent()
        return found is not None and bool(int(found[2], 16) & SAMPLED)

    @property
    def trace_id(self) -> str:
        """The id of the client's trace, 32 hex digits; empty if it has no valid `traceparent`."""
        found = self._traceparent()
        return "" if found is None else found[1]

    def _traceparent(self) -> re.Match[str] | None:
        given = self.message.extras.get("traceparent")
        if given is None:
            return None
        try:
            return _TRACEPARENT.fullmatch(msgspec.msgpack.decode(given, type=str))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    @property
    def brought(self) -> int:
        """The bytes of the body that the file-level calls announce."""
        return sum(arguments.rest for _, arguments in self.calls if isinstance(arguments, BringRequest))

    @property
    def description(self) -> str:
        """The request in short, for a log."""
        verbs = [verb.name for verb, _ in self.calls]
        shown = ", ".join(verbs[:3]) + (f" and {len(verbs) - 3} more" if len(verbs) > 3 else "")
        path = self.message.path
        return f"{shown} on {path!r}" if path else shown


class RequestFailure(PlanRefused):
    """The refusal of a request, which changes nothing. `outcomes`: the outcome of each call, if not all have the same
    error."""

    def __init__(self, fault: CodedError, outcomes: Sequence[Outcome] = ()) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.outcomes = list(outcomes)


def fault(error: CodedError) -> Fault:
    """Return the wire message for an error."""
    return Fault(error.code, raw(error.wire_arguments()))


OWN_RELEASE = "the requests of this server's release: update the client or the server"

ALL_FLAGS = sum(RequestFlag)

FORBIDDEN: tuple[tuple[Callable[[RequestHeader], object], str, str], ...] = (
    (lambda it: it.id_size != REQUEST_ID, "a request id of {it.id_size} bytes", f"ids of {REQUEST_ID}"),
    (lambda it: it.message.age < 0, "a request of age {it.message.age}", "ages of 0 or more"),
    (lambda it: it.message.flags & ~ALL_FLAGS, "request flags {it.message.flags:#x}", f"flags up to {ALL_FLAGS:#x}"),
    (lambda it: it.orders, "the request extra {it.orders[0]!r}", "no extra field that begins with !"),
    (lambda it: it.is_vfs and it.plain, "{it.plain[0]} beside VFS calls", "file-level (VFS) calls alone or none"),
    (lambda it: it.is_vfs and it.flags & ~RequestFlag.BODY, "flags {it.flags:#x} with VFS calls", "the flag BODY"),
    (
        lambda it: it.ups > 1 or it.downs > 1,
        "{it.ups} bodies up and {it.downs} down in one request",
        "at most one each way",
    ),
    (lambda it: it.alone and it.size > 1, "{it.alone[0]} in a request of {it.size} calls", "this call alone"),
    (lambda it: len(it.longs) > 1, "{it.longs[1]} as a second long call of one request", "one long call"),
    (
        lambda it: it.mutates and it.longs,
        "{it.longs[0]}, which may take minutes, in a request of changes",
        "such a call among reads",
    ),
    (lambda it: it.mutates and it.downs, "a body down in a request of changes", "bodies down in reads only"),
    (lambda it: it.has_wrong_body, "a request whose flag BODY contradicts its calls", "BODY with calls that bring one"),
    (lambda it: it.flags & BULK and not it.flags & RequestFlag.BODY, "the flag BULK without BODY", "BULK with a body"),
)
"""Requests that no correct client sends: for each a test, a text for the mistake, and a text for what is supported."""


def read_header(payload: bytes, *, body: bool) -> RequestHeader | CodedError:
    """Return the request in a payload, or the error with which it is refused. `body`: the flag BODY of its frame."""
    try:
        header = check_header(decode_request(payload))
    except RemoteProtocolError as error:
        return Unsupported(f"a request of this form ({error})", OWN_RELEASE)
    except CodedError as error:
        return error
    if body != bool(header.flags & RequestFlag.BODY):
        return Unsupported("a request whose flag BODY contradicts its frame", OWN_RELEASE)
    return header


def check_header(message: Request) -> RequestHeader:
    """Decode every call of a request and check their combination.

    Raises:
        Unsupported: a verb, a field, a flag or a combination this release does not know.
        LimitExceeded: more calls, or longer push options, than a request may have.
    """
    if len(message.calls) > MAX_CALLS:
        raise LimitExceeded("calls in one request", len(message.calls), MAX_CALLS)
    if not message.calls:
        raise Unsupported("a request without calls", "requests of one call or more")
    calls, flags = tuple(map(_decoded, message.calls)), RequestFlag(message.flags & ALL_FLAGS)
    header = RequestHeader(message, calls, flags, _push_options(message))
    if header.is_vfs and len(header.calls) > MAX_FILE_CALLS:
        raise LimitExceeded("file-level calls in one request", len(header.calls), MAX_FILE_CALLS)
    for is_found, what, supported in FORBIDDEN:
        if is_found(header):
            raise Unsupported(what.format(it=header), supported)
    return header


def _decoded(call: Call) -> tuple[AnyVerb, Arguments]:
    verb = VERBS.get(call.verb)
    if verb is None:
        raise Unsupported(f"the verb {call.verb!r}", OWN_RELEASE)
    try:
        return verb, msgspec.msgpack.decode(call.arguments, type=verb.request_type)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Unsupported(f"these arguments of {call.verb} ({error})", OWN_RELEASE) from None


def _push_options(message: Request) -> tuple[str, ...]:
    given = message.extras.get(PUSH_OPTIONS)
    if given is None:
        return ()
    if len(given) > MAX_PUSH_OPTIONS:
        raise LimitExceeded("bytes of push options", len(given), MAX_PUSH_OPTIONS)
    try:
        return msgspec.msgpack.decode(given, type=tuple[str, ...])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Unsupported(f"these push options ({error})", "a list of texts in UTF-8") from None


def declared(verb: AnyVerb, error: CodedError) -> CodedError:
    """Return an error that a verb raised, if the verb declares it. Otherwise raise `UndeclaredError`."""
    if isinstance(error, (*verb.errors, *ALWAYS)):
        return error
    raise UndeclaredError(f"{verb.name} raised {type(error).__name__}, which it does not declare: {error}") from error


class UndeclaredError(Exception):
    """A verb raised a coded error that it does not declare. That is a bug, and the client gets `internal`."""


def internal(error: Exception) -> InternalError:
    """Log a bug, and return the error for the client, which has a reference to the line in the log."""
    reference = uuid.uuid4().hex[:12]
    log.error("internal error %s", reference, exc_info=error)
    return InternalError(reference)
