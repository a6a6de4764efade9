"""A request's payload -> its calls, all of them known and valid; and an error -> the fault that travels."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Sequence
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
from smartserver.verbs.declare import VERBS, AnyVerb, Arguments, Body, Effect
from smartserver.verbs.vfs import BringRequest
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_CALLS, MAX_FILE_CALLS
from smartserver.wire.messages import Fault, Outcome, Request, RequestFlag, decode_request, raw
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
"""What any verb may raise, since any may meet a damaged, missing or recreated repository, a user without permission, a
store some of whose calls are banned, a client that is gone, or the limits of a request."""

REQUEST_ID = 16
"""Bytes of a request's id."""


_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})")
"""The field of W3C Trace Context, version 0: a trace's id, a span's id, and flags."""

SAMPLED = 1
"""Of the flags: the trace is recorded."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """A request without its body: its calls are all known and its arguments all valid."""

    message: Request
    calls: tuple[tuple[AnyVerb, Arguments], ...]
    flags: RequestFlag

    @property
    def mutates(self) -> bool:
        """Whether it needs a commit."""
        return any(verb.effect is Effect.MUTATE for verb, _ in self.calls)

    @property
    def long(self) -> bool:
        """Whether it may take minutes."""
        return any(verb.long for verb, _ in self.calls)

    @property
    def is_vfs(self) -> bool:
        """Whether its calls are file-level ones: all are, or none."""
        return any(verb.is_vfs for verb, _ in self.calls)

    @property
    def wants_spans(self) -> bool:
        """Whether the client records a trace: its `traceparent` (W3C Trace Context) has the flag `sampled`."""
        found = self._traceparent()
        return found is not None and bool(int(found[2], 16) & SAMPLED)

    @property
    def trace_id(self) -> str:
        """The id of the client's trace, 32 hex digits; empty where its `traceparent` says none."""
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
        """Bytes that file-level calls have in the body."""
        return sum(arguments.rest for _, arguments in self.calls if isinstance(arguments, BringRequest))

    @property
    def description(self) -> str:
        """The request in short, for a log."""
        verbs = [verb.name for verb, _ in self.calls]
        shown = ", ".join(verbs[:3]) + (f" and {len(verbs) - 3} more" if len(verbs) > 3 else "")
        path = self.message.path
        return f"{shown} on {path!r}" if path else shown


class RequestFailure(Exception):
    """Nothing changes: the fault of the whole request, and the outcome of each call where they differ."""

    def __init__(self, fault: CodedError, outcomes: Sequence[Outcome] = ()) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.outcomes = list(outcomes)


def fault(error: CodedError) -> Fault:
    """An error as it travels."""
    return Fault(error.code, raw(error.wire_arguments()))


def read_header(payload: bytes, *, body: bool) -> RequestHeader | CodedError:
    """The request in a payload, or why it is refused. `body`: what its frame says."""
    try:
        header = check_header(decode_request(payload))
    except RemoteProtocolError as wrong:
        return Unsupported("a request of this form", str(wrong))
    except CodedError as wrong:
        return wrong
    if body != bool(header.flags & RequestFlag.BODY):
        return Unsupported("the request flag BODY at odds with its frame", "the same of both")
    return header


def check_header(message: Request) -> RequestHeader:
    """Decode every call before anything is done.

    Raises:
        Unsupported: a verb, a field, a flag or a combination this release does not know.
        LimitExceeded: more calls than a request may have.
    """
    if len(message.calls) > MAX_CALLS:
        raise LimitExceeded("calls in one request", len(message.calls), MAX_CALLS)
    if not message.calls:
        raise Unsupported("a request without calls", "requests of one call or more")
    if len(message.id) != REQUEST_ID:
        raise Unsupported(f"a request id of {len(message.id)} bytes", f"ids of {REQUEST_ID}")
    if message.age < 0:
        raise Unsupported(f"a request of age {message.age}", "ages of 0 or more")
    if message.flags & ~sum(RequestFlag):
        raise Unsupported(f"request flags {message.flags:#x}", f"flags up to {sum(RequestFlag):#x}")
    flags = RequestFlag(message.flags)
    for key in message.extras:
        if key.startswith("!"):
            raise Unsupported(f"the request extra {key!r}", "none that must be obeyed")
    calls: list[tuple[AnyVerb, Arguments]] = []
    for call in message.calls:
        verb = VERBS.get(call.verb)
        if verb is None:
            raise Unsupported(f"the verb {call.verb!r}", ", ".join(sorted(VERBS)))
        try:
            calls.append((verb, msgspec.msgpack.decode(call.arguments, type=verb.request_type)))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as wrong:
            raise Unsupported(f"these arguments of {call.verb}", str(wrong)) from None
    header = RequestHeader(message, tuple(calls), flags)
    if header.is_vfs:
        _check_vfs(header)
        return header
    ups = sum(verb.body is Body.UP for verb, _ in calls)
    downs = sum(verb.body is Body.DOWN for verb, _ in calls)
    if ups > 1 or downs > 1:
        raise Unsupported(f"{ups} bodies up and {downs} down in one request", "at most one each way")
    alone = [verb.name for verb, _ in calls if verb.alone]
    if alone and len(calls) > 1:
        raise Unsupported(f"{alone[0]} in a request of {len(calls)} calls", "it alone")
    longs = [verb.name for verb, _ in calls if verb.long]
    if len(longs) > 1:
        raise Unsupported(f"{len(longs)} calls of {longs[0]} in one request", "one in a request")
    if header.mutates and header.long:
        raise Unsupported("a verb that may take minutes in a request that changes something", "it in reads only")
    if header.mutates and downs:
        raise Unsupported("a body down in a request that changes something", "bodies down in reads only")
    # A check may leave the body away; one that none of its verbs takes, and so permits, would be held all the same.
    if bool(flags & RequestFlag.BODY) != bool(ups) and not (ups and flags & RequestFlag.CHECK_ONLY):
        raise Unsupported("the request flag BODY at odds with its calls", "BODY with a verb that takes one")
    if flags & RequestFlag.BULK and not flags & RequestFlag.BODY:
        raise Unsupported("the request flag BULK without BODY", "BULK with a body")
    return header


def _check_vfs(header: RequestHeader) -> None:
    """Check a request that has a file-level call."""
    calls, flags = header.calls, header.flags
    others = [verb.name for verb, _ in calls if not verb.is_vfs]
    if others:
        (first, *_) = (verb.name for verb, _ in calls if verb.is_vfs)
        raise Unsupported(f"{first} and {others[0]} in one request", "file-level (VFS) calls alone or none")
    if len(calls) > MAX_FILE_CALLS:
        raise LimitExceeded("file-level calls in one request", len(calls), MAX_FILE_CALLS)
    if flags & ~RequestFlag.BODY:
        raise Unsupported(f"request flags {int(flags):#x} with file-level calls", "the flag BODY with those")
    if bool(flags & RequestFlag.BODY) != bool(header.brought):
        raise Unsupported("the request flag BODY at odds with its calls", "BODY with a call whose content is in it")


def declared(verb: AnyVerb, error: CodedError) -> CodedError:
    """The error itself if the verb may raise it; else a bug in the declaration."""
    if isinstance(error, (*verb.errors, *ALWAYS)):
        return error
    raise UndeclaredError(f"{verb.name} raised {type(error).__name__}, which it does not declare: {error}") from error


class UndeclaredError(Exception):
    """A verb raised a coded error it does not list: fails in tests, is `internal` in production."""


def internal(error: Exception) -> InternalError:
    """What a client is told of a bug: a reference to what the log says."""
    reference = uuid.uuid4().hex[:12]
    log.error("internal error %s", reference, exc_info=error)
    return InternalError(reference)
