"""A decoded request -> the outcome of each of its calls. No I/O of its own: it runs verbs on a transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

import msgspec

from smartserver.errors import (
    AccessDenied,
    Banned,
    Cancelled,
    CorruptFile,
    InternalError,
    LimitExceeded,
    NoSuchRepository,
    NotDone,
    RepositoryChanged,
    RequestRefused,
    Unsupported,
)
from smartserver.server.access import Access
from smartserver.store.allowance import Allowance
from smartserver.store.model import ContentPlan, Listed, PackReport, PullPlan, VerifyReport
from smartserver.store.transaction import RepositoryTransaction
from smartserver.verbs.declare import VERBS, AnyVerb, Arguments, Body, Effect, Files, Permission, Result, ServerFacts
from smartserver.verbs.fields import HERE
from smartserver.verbs.here import with_branch
from smartserver.verbs.vfs import BringRequest
from smartserver.wire.limits import MAX_CALLS, MAX_FILE_CALLS, MAX_RESULTS
from smartserver.wire.messages import Fault, Outcome, Request, RequestFlag, Status, raw
from transports.errors import CodedError, TransportError

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

_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request whose calls are all known and whose arguments are all valid."""

    message: Request
    calls: tuple[tuple[AnyVerb, Arguments], ...]
    flags: RequestFlag

    @property
    def mutates(self) -> bool:
        """Whether it needs a swap."""
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


class Refused(Exception):
    """Nothing changes: the fault of the whole request, and the outcome of each call where they differ."""

    def __init__(self, fault: CodedError, outcomes: Sequence[Outcome] = ()) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.outcomes = list(outcomes)


def fault(error: CodedError) -> Fault:
    """An error as it travels."""
    return Fault(error.code, raw(error.wire_arguments()))


def prepare(message: Request) -> Prepared:
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
    prepared = Prepared(message, tuple(calls), flags)
    if prepared.is_vfs:
        _check_vfs(prepared)
        return prepared
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
    if prepared.mutates and prepared.long:
        raise Unsupported("a verb that may take minutes in a request that changes something", "it in reads only")
    if prepared.mutates and downs:
        raise Unsupported("a body down in a request that changes something", "bodies down in reads only")
    # A check may leave the body away; one that none of its verbs takes, and so permits, would be held all the same.
    if bool(flags & RequestFlag.BODY) != bool(ups) and not (ups and flags & RequestFlag.CHECK_ONLY):
        raise Unsupported("the request flag BODY at odds with its calls", "BODY with a verb that takes one")
    if flags & RequestFlag.BULK and not flags & RequestFlag.BODY:
        raise Unsupported("the request flag BULK without BODY", "BULK with a body")
    return prepared


def _check_vfs(prepared: Prepared) -> None:
    """Check a request that has a file-level call.

    Raises:
        Unsupported, LimitExceeded: as `prepare`.
    """
    calls, flags = prepared.calls, prepared.flags
    others = [verb.name for verb, _ in calls if not verb.is_vfs]
    if others:
        (first, *_) = (verb.name for verb, _ in calls if verb.is_vfs)
        raise Unsupported(f"{first} and {others[0]} in one request", "file-level (VFS) calls alone or none")
    if len(calls) > MAX_FILE_CALLS:
        raise LimitExceeded("file-level calls in one request", len(calls), MAX_FILE_CALLS)
    if flags & ~RequestFlag.BODY:
        raise Unsupported(f"request flags {int(flags):#x} with file-level calls", "the flag BODY with those")
    if bool(flags & RequestFlag.BODY) != bool(prepared.brought):
        raise Unsupported("the request flag BODY at odds with its calls", "BODY with a call whose content is in it")


class NoRepository:
    """The transaction of requests that concern the server alone: whatever is asked of it, there is no repository."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.exists = False

    def __getattr__(self, name: str) -> NoReturn:
        raise NoSuchRepository(self.path)


class Served(Protocol):
    """The request whose calls are run (`server.asked.Asked`)."""

    prepared: Prepared
    access: Access
    allowance: Allowance

    @property
    def facts(self) -> ServerFacts:
        """What this server is."""

    @property
    def place(self) -> str:
        """The path of the repository, be it there or to be made."""

    @property
    def may_create(self) -> bool:
        """Whether the server makes repositories."""

    def verify(self) -> VerifyReport:
        """Check the whole repository."""

    def pack(self) -> PackReport:
        """Join the repository's packs."""

    def listing(self, after: str, most: int) -> Sequence[Listed]:
        """The repositories at or below the path."""


class CallContext:
    """What the verbs of one request share; implements `verbs.declare.Context`."""

    def __init__(
        self, transaction: RepositoryTransaction, asked: Served, *, early: bool = False, files: Files | None = None
    ) -> None:
        """`early`: the body is still on its way."""
        self._transaction = transaction
        self._asked = asked
        self._path = asked.prepared.message.path
        self._below = bool(asked.prepared.flags & RequestFlag.BELOW)
        self._branch: tuple[bytes, str] | None = None
        self._early = early
        self._files = files
        self.results = 0
        """Bytes of the results so far, of the one that is being made too."""
        self.plan: PullPlan | ContentPlan | None = None

    @property
    def transaction(self) -> RepositoryTransaction:
        """The request's view of its repository."""
        return self._transaction

    @property
    def server(self) -> ServerFacts:
        """What this server is."""
        return self._asked.facts

    @property
    def early(self) -> bool:
        """Whether the body is still on its way."""
        return self._early

    @property
    def path(self) -> str:
        """The path the client named."""
        return self._path

    @property
    def at(self) -> str:
        """The longest prefix of the path that is a repository, one that this request makes included."""
        return self._asked.place if self._transaction.exists else ""

    @property
    def branch(self) -> bytes:
        """The ref that `.` stands for; empty without the flag BELOW."""
        return self._named()[0]

    @property
    def inner(self) -> str:
        """What of the path leads into that branch."""
        return self._named()[1]

    @property
    def files(self) -> Files:
        """The served files."""
        assert self._files is not None  # Those who ask are in requests of VFS calls.
        return self._files

    def run(self, verb: AnyVerb, arguments: Arguments) -> Result:
        """Run a verb, the ref `.` in its arguments being the branch the path names.

        Raises:
            CodedError: what it declares.
        """
        self._asked.allowance()  # Which ends a request that nobody waits for.
        if self._below:
            arguments = with_branch(arguments, lambda: self.branch)
        result: Result = verb.function(self, arguments)
        return result

    def gather(self, size: int) -> None:
        """Count bytes of a result while it is made, so that one that is too long is never there whole.

        Raises:
            LimitExceeded: the results of the request are too long.
        """
        self.results += size
        if self.results > MAX_RESULTS:
            raise LimitExceeded("bytes of results of one request", self.results, MAX_RESULTS)

    def _named(self) -> tuple[bytes, str]:
        """The branch the path names and what is below that, looked up once: a read sees one state of the refs."""
        if not self._below:
            return b"", ""
        if self._branch is None:
            parts = self._path.strip("/")[len(self._asked.place) :].strip("/").split("/")
            whole = "/".join(parts).encode() or HERE
            self._branch = whole, ""
            for count in () if self._asked.prepared.mutates else range(len(parts), -1, -1):
                ref = "/".join(parts[:count]).encode() or HERE
                if self._transaction.ref(ref) is not None:
                    self._branch = ref, "/".join(parts[count:])
                    break
        return self._branch

    def require(self, permission: Permission, ref: bytes = b"") -> None:
        """Check one permission.

        Raises:
            AccessDenied: it is not given, or the repository would have to be made and the server makes none.
        """
        if permission is Permission.CREATE and not ref:
            path = self._transaction.path
            if not self._asked.may_create:
                raise AccessDenied("create the repository", "this server makes none (`serve --no-create`)", path)
            if not path:
                # It would be around every other one there could ever be.
                raise AccessDenied("create a repository", "it needs a name below the served folder")
        self._asked.access.require(permission, ref)

    def stream(self, plan: PullPlan | ContentPlan) -> None:
        """Remember what to send after the reply."""
        self.plan = plan

    def verify(self) -> VerifyReport:
        """Check the whole repository."""
        return self._asked.verify()

    def pack(self) -> PackReport:
        """Join the repository's packs."""
        return self._asked.pack()

    def listing(self, after: str, most: int) -> Sequence[Listed]:
        """The repositories at or below the path."""
        return self._asked.listing(after, most)


def decide(prepared: Prepared, context: CallContext) -> list[Outcome]:
    """Run the calls in order and give the outcome of each.

    Raises:
        Refused: the request changes nothing: a call without a verdict of its own was refused, or one of an atomic
            request, or all of them.
    """
    outcomes: list[Outcome] = []
    refusals: list[CodedError] = []
    judged = 0
    for verb, arguments in prepared.calls:
        before = context.results
        try:
            context.require(verb.permission)
            result = context.run(verb, arguments)
        except CodedError as error:
            checked = declared(verb, error)
            if not verb.own_verdict or isinstance(error, Cancelled):
                raise Refused(checked) from error
            refusals.append(checked)
            outcomes.append(Outcome(Status.REFUSED, fault=fault(checked)))
        else:
            encoded = _encoder.encode(result)
            context.results = before  # What was gathered on the way is in it.
            try:
                context.gather(len(encoded))
            except LimitExceeded as error:
                raise Refused(error) from error
            outcomes.append(Outcome(Status.DONE, msgspec.Raw(encoded)))
        judged += verb.own_verdict
    if refusals and (prepared.flags & RequestFlag.ATOMIC or len(refusals) == judged):
        if len(prepared.calls) == 1:
            raise Refused(refusals[0])
        undone = [
            outcome if outcome.status == Status.REFUSED else Outcome(Status.NOT_DONE, fault=fault(NotDone()))
            for outcome in outcomes
        ]
        raise Refused(RequestRefused(), undone)
    return outcomes


def declared(verb: AnyVerb, error: CodedError) -> CodedError:
    """The error itself if the verb may raise it; else a bug in the declaration."""
    if isinstance(error, (*verb.errors, *ALWAYS)):
        return error
    raise UndeclaredError(f"{verb.name} raised {type(error).__name__}, which it does not declare: {error}") from error


class UndeclaredError(Exception):
    """A verb raised a coded error it does not list: fails in tests, is `internal` in production."""


def internal(error: Exception, log: Callable[[str, Exception], None]) -> InternalError:
    """What a client is told of a bug: a reference to what the log says."""
    reference = uuid.uuid4().hex[:12]
    log(reference, error)
    return InternalError(reference)
