"""`RequestContext`: one request, as its verbs and the steps of its work see it. It has the repository that the request
names (looked up once), the user and the limits, and runs the calls on a transaction. A request that changes something
is planned more than once: each run begins with `decide` or `run_before_body`. Everything here blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn, cast

import msgspec
from msgspec import Raw

from smartserver.errors import (
    AccessDenied,
    Cancelled,
    IncompleteRepository,
    LimitExceeded,
    NestedRepository,
    NoSuchRepository,
    NotDone,
    RequestRefused,
)
from smartserver.records.model import HERE, GraphNode
from smartserver.server import jail
from smartserver.server.access import Access
from smartserver.server.header import RequestFailure, RequestHeader, declared, fault
from smartserver.server.open_files import OpenFiles
from smartserver.server.site import NO_CREATE, RepositoryLocation, Site
from smartserver.store.allowance import Allowance
from smartserver.store.commit import CommitOutcome
from smartserver.store.log_view import Head
from smartserver.store.model import Changes, ContentPlan, KnownVersion, ListingEntry, PackReport, PullPlan, VerifyReport
from smartserver.store.state import State as StoredState
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Report
from smartserver.store.verify import mend
from smartserver.verbs.declare import AnyVerb, Arguments, Body, Files, Permission, Result
from smartserver.verbs.here import with_branch
from smartserver.wire.limits import MAX_RESULTS
from smartserver.wire.messages import Advice, Outcome, Reply, RequestFlag, State, Status, raw
from transports.errors import CodedError

NIL = Raw(b"\xc0")
"""The encoded value of a deleted ref."""

_encoder = msgspec.msgpack.Encoder()


def state_of(changes: Changes) -> State:
    """Return the message for a repository's state, or for its changes since a version."""
    return State(
        incarnation=changes.incarnation,
        version=changes.version,
        since=changes.since,
        refs={name: NIL if value is None else Raw(value) for name, value in changes.refs.items()},
        maps={name: raw(dict(entries.items())) for name, entries in changes.maps.items()},
        vcs=changes.vcs,
        settings=dict(changes.settings),
        mark=changes.mark,
    )


class NoRepository:
    """The transaction of requests that concern the server alone. All attributes but `path` and `exists` raise
    `NoSuchRepository`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.exists = False

    def __getattr__(self, name: str) -> NoReturn:
        raise NoSuchRepository(self.path)


class RequestContext:
    """One request and the repository it names; implements `verbs.declare.Context`."""

    def __init__(
        self,
        site: Site,
        access: Access,
        header: RequestHeader,
        progress: Report,
        peer: str = "",
        via: str = "",
        open_files: OpenFiles | None = None,
    ) -> None:
        """`open_files`: counts the files that are open for answers of the connection."""
        self.header = header
        self.access = access
        self.peer, self.via = peer, via
        self.progress = progress
        self.allowance = Allowance()
        """The limits of the request's cost. `cancelled` is set when the client cancels the request or disconnects."""
        self.site = site
        self.server = site.facts
        self.path = header.message.path
        self.open_files = open_files or site.open_files
        self.location: RepositoryLocation | None = None
        """The result of `find`; None before the repository was looked up."""
        self._look: Head | None = None
        """The state that `find` has read; None once it was used."""
        self.is_guess = False
        """True while `location` is a remembered state, and the store was not read since the request arrived."""
        body = header.flags & RequestFlag.BODY and not header.flags & RequestFlag.CHECK_ONLY
        self._may_guess = bool(body and header.mutates and not header.message.age)
        self._repeated: CommitOutcome | None = None
        self._arrived = site.clock() if header.message.age else 0.0
        self._below = bool(header.flags & RequestFlag.BELOW)
        # The rest belongs to one run of the calls.
        self.transaction = cast("Transaction", NoRepository(self.path))
        self.early = False
        self.plan: PullPlan | ContentPlan | None = None
        """The body that follows the reply."""
        self.request_files: Files | None = None
        self.results = 0
        """Bytes of the results so far, including the result that is being encoded."""
        self._branch: tuple[bytes, str] | None = None

    @property
    def id(self) -> bytes:
        """The id of the request, which is the same in each repetition."""
        return self.header.message.id

    @property
    def known(self) -> KnownVersion | None:
        """The newest version of the repository that the client has seen; None if it has seen none."""
        known = self.header.message.known
        return None if known is None else KnownVersion(known.incarnation, known.version, known.mark)

    def find(self) -> RepositoryLocation:
        """Return the repository, or the place where one may be created. For a push to a remote store, the repository is
        assumed to be in its last known state. The store is read when the pack is moved, or before the request is
        refused (`confirm`).

        Raises:
            AccessDenied: the user lacks the permission to read the place. `location` is then not set.
        """
        if self.location is None:
            found = self._guess() or self._find(self.path)
            self.access.require(Permission.READ, found.repository.path)
            self.location, self._look = found, found.look
        return self.location

    def confirm(self) -> bool:
        """Read the repository if only its assumed state was used so far. Return True if the real state differs from
        it."""
        if not self.is_guess:
            return False
        guessed, self.location, self._look = self.location, None, None
        self._may_guess = self.is_guess = False
        return guessed is None or _state_at(self.find()) != _state_at(guessed)

    def _guess(self) -> RepositoryLocation | None:
        if not self._may_guess:
            return None
        names = jail.prefixes(jail.place(self.path)) if self._below else [jail.clean(self.path)]
        found = self.site.known([name for name in names if self.may_read(name)])
        self.is_guess = found is not None
        return found

    @property
    def is_repacking(self) -> bool:
        """True while packs of the repository are being joined."""
        return self.location is not None and self.location.repository.is_repacking

    def may_read(self, path: str) -> bool:
        """Return True if the user may know of a repository."""
        return self.access.may(Permission.READ, path)

    def _find(self, path: str) -> RepositoryLocation:
        below = self._below
        if below or all(verb.finds_above for verb, _ in self.header.calls):
            if not any(map(self.may_read, jail.prefixes(jail.place(path) if below else jail.clean(path)))):
                self.access.require(Permission.READ, jail.clean(path))  # Before anything is looked for.
            return self._find_below(path) if below else self.site.find_above(path, self.may_read)
        self.access.require(Permission.READ, jail.clean(path))
        return self.site.find(path)

    def without_names(self, error: CodedError) -> CodedError:
        """Return the error, or an error that does not name a repository which the user may not read."""
        if isinstance(error, NestedRepository) and not (self.may_read(error.inside) and self.may_read(error.path)):
            return AccessDenied(
                "create the repository", "it would be inside a repository that you may not read: choose another path"
            )
        return error

    def _find_below(self, path: str) -> RepositoryLocation:
        """Return the repository that a path names or leads into. A repeated request that was carried out finds its
        repository even if that was deleted since: it must not create another one.
        """
        found = self.site.find_below(path, self.may_read)
        if not found.exists and self.header.mutates and self.header.message.age:
            for deleted in self.site.deleted_above(path, self.may_read):
                self._repeated = deleted.earlier(self.id, self.age())
                if self._repeated is not None:
                    return RepositoryLocation(deleted, False)
        return found

    def admit(self, verb: AnyVerb) -> None:
        """Check the permission that every call of a verb needs. For a verb about the server, any permission is enough.

        Raises:
            AccessDenied: the user lacks it.
        """
        if not verb.site_wide:
            self.access.require(verb.permission, self.find().repository.path)
        elif not self.access.admitted:
            self.access.require(Permission.READ, "")

    def begin(self, announced: Sequence[GraphNode] = ()) -> Transaction:
        """Begin a transaction on the repository: the first on the state that `find` saw, later ones on the newest
        state."""
        repository = self.find().repository
        return repository.begin(announced, self.take_look(), self.allowance)

    def take_look(self) -> Head | None:
        """Return the state that `find` saw; None after the first call."""
        look, self._look = self._look, None
        return look

    def age(self) -> int:
        """Return the milliseconds since the request was first sent: the age in the request, plus the time since the
        request arrived. It is 0 for the first sending."""
        age = self.header.message.age
        return age + int((self.site.clock() - self._arrived) * 1000) if age else 0

    def earlier(self) -> CommitOutcome | None:
        """Return the first outcome of a repeated request; None if the request was not carried out before."""
        if self._repeated is None and self.header.message.age:
            self._repeated = self.find().repository.earlier(self.id, self.age())
        return self._repeated

    def reply(self, outcomes: list[Outcome], changes: Changes | None, advice: Sequence[Advice] = ()) -> Reply:
        """Return the message of an answer. Without `changes`, the answer has no state of a repository."""
        state = None if changes is None else state_of(changes)
        return Reply(outcomes, state, capabilities=self.capabilities(), advice=list(advice))

    def capabilities(self) -> list[str]:
        """Return the server's capabilities if the client seems not to know this repository yet, else none."""
        return [] if self.known is not None else list(self.site.facts.capabilities)

    @property
    def copies(self) -> bool:
        """True if the request is part of a copy of several requests."""
        return any(verb.copies(arguments) for verb, arguments in self.header.calls)

    def shows(self, stored: StoredState) -> bool:
        """Return True if the client may see a state of the repository. An incomplete repository is visible only to the
        copy that creates it."""
        return not stored.is_incomplete or self.copies

    def changes(self, transaction: Transaction) -> Changes | None:
        """Return the changes of the stored repository since the version that the client knows; None if the client may
        see none."""
        snapshot = transaction.snapshot
        return snapshot.state.changes_since(self.known) if snapshot is not None and self.shows(snapshot.state) else None

    def state_after(self, error: CodedError) -> State | None:
        """Return the state that a refused client needs to plan again; None if no state can be sent."""
        if self.location is None or not self.location.exists or isinstance(error, LimitExceeded):
            return None
        try:
            self._look = None  # The client may know that state already.
            changes = self.changes(self.begin())
            return None if changes is None else state_of(changes)
        except CodedError:
            return None

    # -- the run of the calls

    @property
    def at(self) -> str:
        """The longest prefix of the path that is a repository, including one that this request creates; empty if no
        prefix is."""
        return self.find().repository.path if self.transaction.exists else ""

    @property
    def branch(self) -> bytes:
        """The ref that `.` denotes; empty without the flag BELOW."""
        return self._named()[0]

    @property
    def inner(self) -> str:
        """The part of the path below the branch."""
        return self._named()[1]

    @property
    def files(self) -> Files:
        """The served files."""
        assert self.request_files is not None  # Only file-level verbs use it, after `vfs.answer` has set it.
        return self.request_files

    def _enter(self, transaction: Transaction | None, *, early: bool) -> None:
        self.transaction = transaction or cast("Transaction", NoRepository(self.path))
        self.early = early
        self.plan = None
        self.results = 0
        self._branch = None

    def decide(self, transaction: Transaction | None = None, *, early: bool = False) -> list[Outcome]:
        """Run the calls on a transaction, in order, and return the outcome of each.

        `transaction`: None for requests that concern the server alone. `early`: True if the body is not complete yet.

        Raises:
            RequestFailure: a call without its own verdict was refused, or any call of an atomic request, or every call
                with its own verdict, unless a later request of a copy needs the revisions.
        """
        self._enter(transaction, early=early)
        outcomes: list[Outcome] = []
        refusals: list[CodedError] = []
        judged = 0
        header = self.header
        is_maintenance = all(verb.of_incomplete for verb, _ in header.calls)
        if self.transaction.exists and self.transaction.is_incomplete and not (is_maintenance or self.copies):
            raise RequestFailure(IncompleteRepository(self.transaction.path))
        for verb, arguments in header.calls:
            before = self.results
            try:
                self.admit(verb)
                result = self.run(verb, arguments)
            except CodedError as error:
                checked = declared(verb, error)
                if not verb.own_verdict or isinstance(error, Cancelled):
                    raise RequestFailure(checked) from error
                refusals.append(checked)
                outcomes.append(Outcome(Status.REFUSED, fault=fault(checked)))
            else:
                encoded = _encoder.encode(result)
                self.results = before  # The result includes all that was gathered for it.
                try:
                    self.gather(len(encoded))
                except LimitExceeded as error:
                    raise RequestFailure(error) from error
                outcomes.append(Outcome(Status.DONE, msgspec.Raw(encoded)))
            judged += verb.own_verdict
        # Refs of later requests of a copy may reach what this one brings.
        is_needed = transaction is not None and transaction.is_continued and bool(transaction.announced)
        if refusals and (header.flags & RequestFlag.ATOMIC or (len(refusals) == judged and not is_needed)):
            if len(header.calls) == 1:
                raise RequestFailure(refusals[0])
            undone = Outcome(Status.NOT_DONE, fault=fault(NotDone()))
            raise RequestFailure(
                RequestRefused(), [outcome if outcome.status == Status.REFUSED else undone for outcome in outcomes]
            )
        self.transaction.is_partial = bool(refusals)
        if refusals:
            # The call before them counted the revisions of the refused refs, which are not stored.
            for number, (verb, arguments) in enumerate(header.calls):
                if verb.body is Body.UP:
                    outcomes[number] = Outcome(Status.DONE, msgspec.Raw(_encoder.encode(self.run(verb, arguments))))
        return outcomes

    def run_before_body(self, transaction: Transaction) -> None:
        """Run the calls before the one with the body, such as creation. They decide which kinds of records the body may
        contain.

        Raises:
            RequestFailure: a call without its own verdict was refused, or no repository exists after the calls.
        """
        self._enter(transaction, early=True)
        for verb, arguments in self.header.calls:
            if verb.body is Body.UP:
                break
            try:
                self.run(verb, arguments)
            except CodedError as error:
                checked = declared(verb, error)
                if not verb.own_verdict:
                    raise RequestFailure(checked) from error
        if not transaction.exists:
            raise RequestFailure(NoSuchRepository(self.path))

    def run(self, verb: AnyVerb, arguments: Arguments) -> Result:
        """Run a verb. The ref `.` in its arguments denotes the branch that the path names.

        Raises:
            CodedError: an error that the verb declares.
        """
        self.allowance()  # It raises if nobody waits for the request.
        if self._below:
            arguments = with_branch(arguments, lambda: self.branch)
        result: Result = verb.function(self, arguments)
        return result

    def gather(self, size: int) -> None:
        """Count bytes of a result while it is built, so that a result that is too long is never whole in memory.

        Raises:
            LimitExceeded: the results of the request are too long.
        """
        self.results += size
        if self.results > MAX_RESULTS:
            raise LimitExceeded("bytes of results of one request", self.results, MAX_RESULTS)

    def _named(self) -> tuple[bytes, str]:
        """Return the branch that the path names, and the path below it. They are looked up once, so that a read sees
        one state of the refs."""
        if not self._below:
            return b"", ""
        if self._branch is None:
            parts = self.path.strip("/")[len(self.find().repository.path) :].strip("/").split("/")
            whole = "/".join(parts).encode() or HERE
            self._branch = whole, ""
            for count in () if self.header.mutates else range(len(parts), -1, -1):
                ref = "/".join(parts[:count]).encode() or HERE
                if self.transaction.ref(ref) is not None:
                    self._branch = ref, "/".join(parts[count:])
                    break
        return self._branch

    def require(self, permission: Permission, ref: bytes = b"") -> None:
        """Check one permission.

        Raises:
            AccessDenied: the user lacks the permission, or the server does not create a repository there.
        """
        if permission is Permission.CREATE and not ref:
            path = self.transaction.path
            if not self.site.may_create:
                raise AccessDenied("create the repository", NO_CREATE, path)
            if not path:
                # A repository at the root would contain all others.
                raise AccessDenied(
                    "create a repository in the served folder itself", "give it a name below that folder"
                )
        self.access.require(permission, self.transaction.path, ref)

    def stream(self, plan: PullPlan | ContentPlan) -> None:
        """Set the plan of the body that follows the reply."""
        self.plan = plan

    def listing(self, after: str, most: int) -> Sequence[ListingEntry]:
        """Return the repositories at or below the path; `after` and `most`: as for `Site.listing`."""
        return self.site.listing(self.path, after, most, self.allowance, may_read=self.may_read)

    def verify(self) -> VerifyReport:
        """Check the whole repository."""
        return self.find().repository.verify(partial(self._report, "verify"), self.allowance)

    def mend(self) -> tuple[list[str], bool]:
        """Correct the repository's data in the transaction; the result is that of `store.verify.mend`."""
        return mend(self.transaction)

    def pack(self) -> PackReport:
        """Join packs. Delete files that were dropped a day ago, unless the server does so after changes."""
        repository = self.find().repository
        report = repository.repack(partial(self._report, "pack"))
        if not self.site.tidies:
            repository.clean_up()
        return report

    def _report(self, phase: str, done: int, total: int) -> None:
        self.allowance()
        self.progress(phase, done, total)


def _state_at(location: RepositoryLocation) -> tuple[str, bytes]:
    """Return the path of a repository, and the hash of its state."""
    state = None if location.look is None else location.look.live
    return location.at, b"" if state is None else state.hash
