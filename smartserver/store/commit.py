"""`Commit` turns one request into a record of the log. `Group` puts concurrent changes into one record."""

# Theory of operation
# ===================
#
# A commit turns one request, whose body is already checked and lies in quarantine, into one record of the log. It
# must give the same result however often it is interrupted and repeated, and it must not hold a resource that other
# requests wait for.
#
# The steps, in the order of `run`:
#
# 1) `_first_plan`: the request's calls run on a `Transaction` over a state. The result is a list of changes, or a
#    refusal. If the state was merely remembered, a refusal does not count, and the newest state is read first.
#    `Approve` has the last word on a plan, once the pack is known to fit it.
# 2) `_moved_in`: the entry is written behind the pack (its trailer) and the pack synced; it moves from `incoming` to
#    `packs`, the log is looked at, and the pack is looked at once more. Behind a link all this takes one round trip.
# 3) `_append`: `Group` puts the change into a record together with others that wait, and `Log.append` publishes it.
#    `decide` runs the calls again for each newer state.
# 4) The answer is made from the entry that is in the log. A repeated request gets its first answer (`earlier`).
#
# Rules:
#
# 1) The commit refuses a request only on the newest state. Before its body arrived, a push may also be refused on the
#    state that it began with, by its announced graph. A hook judges the first plan that the calls allow, perhaps on a
#    remembered state; its refusal is final.
# 2) The history is searched for the request's id before anything else is done on a new state. If it has the id, the
#    request was carried out when it was sent before.
# 3) The pack is looked at *after* the state was read and *before* the record is published. A process that was stopped
#    for a day may find its pack gone: from `incoming` as a leftover, from `packs` because a repeat of its request was
#    carried out.
# 4) From the moment a record may name the pack, nothing may delete it, unless it is certain that no record does. So
#    `_append` cancels the clean-up (`undo.pop_all`), and performs it only after a clear refusal.
#
# The hard case is a concurrent push that brought some of the same revisions. Their segments must not be stored twice,
# so `_planned` finds the upload stale, `check_again` cuts them out, and the pack has another content and another
# name. `_written_down` then returns steps a second time. The revisions of refused refs are cut out in the same way: if
# they were stored, anybody could fetch them by id. If a refused ref is accepted on a newer state, the client is told
# that its revisions are missing.
#
# A weak point: the closures in `_append` share `planned`, `made` and `last`. `decide` may run in another thread, that
# of the change that appends the record, but never twice at once.

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from smartserver.errors import NoSuchRepository, OutcomeUnknown
from smartserver.spans import Part, span
from smartserver.store.allowance import Allowance
from smartserver.store.creation import Creation, LookBelow
from smartserver.store.log import Log
from smartserver.store.log_view import NOWHERE, Head
from smartserver.store.record import Entry
from smartserver.store.remote import is_remote
from smartserver.store.snapshot import OpenedState, States
from smartserver.store.state import State, following
from smartserver.store.trailer import Trailer
from smartserver.store.transaction import Transaction, entry_of
from smartserver.store.upload import Report, Upload
from transports.base import Step
from transports.errors import CodedError, TransportError, TransportFailed
from transports.steps import GetStat

AT_MOST = 64 << 10
"""No more changes are added to a record of this many bytes or more."""

Decide = Callable[[State], Entry | None]
"""A function that returns the entry of a change, judged on a state; None if no entry is needed. It may be called in any
thread, several times. An error that it raises refuses the change."""

Looks = Callable[[State], Sequence[Step]]
"""A function that returns the steps to perform between reading a state and judging the change on that state."""


class Draft(NamedTuple):
    """A record that was made before its change was judged: the state it follows, its only entry, and the bytes of the
    record with the state after it."""

    base: State
    entry: Entry
    record: tuple[bytes, State]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A change that waits for its record."""

    decide: Decide
    looks: Looks
    draft: Draft | None
    come: threading.Event = field(default_factory=threading.Event)
    """Set once the change is over, or is the first in the queue and must append the next record."""
    head: Head | None = None
    """The head that includes the change, once its record is published."""
    error: BaseException | None = None
    """The error that refused the change, or with which the publication of its record failed."""

    @property
    def is_over(self) -> bool:
        """True if the change is published or has failed, so that it needs no further record."""
        return self.head is not None or self.error is not None


class Group:
    """Group commit: concurrent changes of one process are committed as one record, so that they share its syncs.

    The first change appends a record. Changes that arrive meanwhile wait; then the first of them appends the next
    record, with all that wait by then. Each change is judged on the state after the changes before it in the record. A
    refused change is left out of the record. It may be refused because of a change of the same record, so the refusal
    is reported once the record is published. Usable from several threads at once.
    """

    def __init__(self, log: Log, clock: Callable[[], float]) -> None:
        """`clock`: seconds since the epoch."""
        self._log = log
        self._clock = clock
        self._guard = threading.Lock()
        self._waiting: list[_Waiting] = []
        """The waiting changes, in order of arrival. The first of them appends the record."""

    def append(self, head: Head, decide: Decide, looks: Looks, draft: Draft | None = None) -> Head:
        """Append a change together with the waiting changes. Return the new head, which survives a loss of power. The
        steps of `looks` are performed before `decide` is called. `draft`: a record that is used if the change turns out
        to be its only entry."""
        own = _Waiting(decide, looks, draft)
        with self._guard:
            self._waiting.append(own)
            waits = len(self._waiting) > 1
        if waits:
            own.come.wait()
        if not own.is_over:
            self._append(None if waits else head)
        if own.error is not None:
            raise own.error
        assert own.head is not None
        return own.head

    def _append(self, head: Head | None) -> None:
        """Append one record with the first waiting changes. Wake them, and the change that appends the next record."""
        if self._log.turns.wait():
            head = None
        with self._guard:
            waiting = list(self._waiting)
        judged: Sequence[_Waiting] = waiting

        def judge(state: State) -> tuple[bytes, State] | None:
            nonlocal judged
            record, judged = self._judge(state, waiting)
            return record

        try:
            now = self._log.append(head or self._log.look(), judge)
        except Exception as error:
            # A refused change fails too: it may have been refused because of a change whose outcome is unknown.
            for change in judged:
                change.error = error
        except BaseException:
            for change in judged:
                change.error = OutcomeUnknown("the server was interrupted")
            raise
        else:
            for change in judged:
                change.head = now
        finally:
            with self._guard:
                self._waiting = [change for change in self._waiting if not change.is_over]
                over = [*judged, *self._waiting[:1]]
            for change in over:
                change.come.set()

    def _judge(self, state: State, waiting: Sequence[_Waiting]) -> tuple[tuple[bytes, State] | None, list[_Waiting]]:
        """Judge the waiting changes on a state until the record is large. Return the record (None if nothing must be
        written) and the judged changes."""
        found: tuple[bytes, State] | None = None
        entries: tuple[Entry, ...] = ()
        judged: list[_Waiting] = []
        for change in waiting:
            change.error = None
        looks = [step for change in waiting for step in change.looks(state)]
        if looks:
            self._log.folder.perform(looks)
        for change in waiting:
            if found is not None and len(found[0]) >= AT_MOST:
                break
            judged.append(change)
            try:
                entry = change.decide(state if found is None else found[1])
                if entry is not None:
                    more, drafted = (*entries, entry), change.draft
                    if drafted is not None and (drafted.base.hash, (drafted.entry,)) == (state.hash, more):
                        found, entries = drafted.record, more
                    else:
                        found, entries = following(state, self._clock(), more), more
            except Exception as error:
                change.error = error
        return found, judged


Plan = Callable[[Transaction], bytes]
"""A function that changes a transaction and returns the encoded outcomes for the log. Any error that it raises ends the
commit."""

Approve = Callable[[Transaction], None]
"""A function that checks a transaction after it was planned and proved, before its record is created. An error that it
raises ends the commit."""


class PlanRefused(Exception):
    """The base class of the errors by which a plan refuses a request, besides `CodedError`."""


class PlanAgain(Exception):
    """An `Approve` raises this error to stop a commit without a change. The upload is kept for another commit."""


def approve_all(transaction: Transaction) -> None:
    """Accept every transaction."""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome of a request that was carried out, now or before."""

    state: State
    outcome: bytes
    """The result of the plan when the request was first carried out."""
    changed: bool
    """True if this call changed the repository."""


class LastLook(NamedTuple):
    """The checks that are made after a state was read, and before the record that follows the state is published."""

    pack: list[GetStat]
    """The check that the request's pack exists; empty without a pack."""
    below: list[LookBelow]
    """The check that the folder of a new repository contains nothing else; empty if no repository is created."""

    @property
    def steps(self) -> list[Step]:
        """The steps of all checks."""
        return [*self.pack, *(step for look in self.below for step in look.steps)]


class PlannedCommit(NamedTuple):
    """A change that was planned on a state and is not committed yet."""

    state: State
    transaction: Transaction
    entry: Entry


@dataclass(slots=True)
class Commit:
    """The commit of one request. The fields are parts of a `PackRepository`, then the arguments of its `commit`."""

    path: str
    log: Log
    group: Group
    states: States
    place: Creation
    clock: Callable[[], float]
    randomness: Callable[[int], bytes]
    request: bytes
    age: int
    user: str
    plan: Plan
    upload: Upload | None
    progress: Report
    allowance: Allowance | None
    seen: Head | None
    """The head that the request has read; None if the newest head must be read."""
    approve: Approve
    options: tuple[str, ...]
    _incarnation: bytes = field(init=False)
    """The incarnation of the repository, if the request creates one."""
    _draft: Draft | None = field(init=False, default=None)
    """The record that was written to a temporary file together with the pack."""

    def __post_init__(self) -> None:
        self._incarnation = self.randomness(16)

    def run(self) -> CommitOutcome:
        """Carry out the request."""
        with contextlib.ExitStack() as undo:
            if self.upload is not None:
                undo.callback(self.upload.abandon)
            try:
                stored, planned = self._first_plan()
            except PlanAgain:
                undo.pop_all()
                raise
            if not isinstance(planned, PlannedCommit):
                if stored.head is not NOWHERE:
                    self.log.make_durable(stored.head)
                return planned
            self.progress("commit", 0, 0)
            try:
                return self._append(planned, None if stored.head is NOWHERE else stored.head, undo)
            finally:
                if self._draft is not None:
                    self.log.discard_draft(self._draft.record[0])

    def _first_plan(self) -> tuple[OpenedState, PlannedCommit | CommitOutcome]:
        """Plan the request on the state that it has read, or on the last known state if it uploads a pack. A later step
        checks that this state is the newest. If the plan refuses the request, read the newest state and plan again."""
        brings = self.upload is not None and self.upload.entry is not None
        seen = self.log.known or NOWHERE if brings else self.seen
        if seen is not None:
            known = self.states.read(seen)
            with contextlib.suppress(CodedError, PlanRefused), span(Part.SERVER, "plan"):
                return known, self._planned(known)
        with span(Part.DISK, "read the log"):
            stored = self.states.read()
        with span(Part.SERVER, "plan"):
            return stored, self._planned(stored)

    def _append(self, planned: PlannedCommit, head: Head | None, undo: contextlib.ExitStack) -> CommitOutcome:
        """Move the pack to `packs`, append the record of a planned change, and return the outcome."""
        upload = self.upload
        with span(Part.DISK, "move the pack"):
            head, last = self._moved_in(planned, head)
        made: CommitOutcome | None = None
        seen = head.state.hash
        looked_above = None if last is None else seen  # By `perform` of the place, in the same trip.

        def looks(state: State) -> Sequence[Step]:
            nonlocal last
            if last is not None and state.hash == seen:
                return ()
            last = self._last_look(planned)
            return last.steps

        def decide(state: State) -> Entry | None:
            nonlocal planned, made, last
            made = None
            if state.hash != planned.state.hash:
                # The entries are searched before anything is read: a failure must not hide that the change was made.
                known = earlier(Head(state), self.clock, self.request, self.age)
                again = known or self._planned(OpenedState(Head(state), self.states.open(state)))
                if not isinstance(again, PlannedCommit):
                    made = again
                    return None
                planned = again
                if planned.transaction.created is not None and state.hash != looked_above:
                    self.place.check_above()
                    last = None  # It was of the earlier plan, which may have created nothing.
            moves = self._written_down(planned)
            if last is None or moves:  # Revisions stored meanwhile were cut out of the pack.
                last = self._last_look(planned)
                self.log.folder.perform([*moves, *last.steps])
            self._check(last, state)
            last = None  # The next time everything is checked again.
            return planned.entry

        # From here on nothing may be deleted after an error or interrupt, unless certainly nothing was changed.
        kept = undo.pop_all()
        try:
            with span(Part.DISK, "append to the log"):
                head = self.group.append(head, decide, looks, self._draft)
        except (OutcomeUnknown, TransportError, KeyboardInterrupt, SystemExit):
            if upload is not None:
                upload.leave()
            raise
        except PlanAgain:
            raise
        except BaseException:
            kept.close()
            raise
        if made is not None and not self._is_known(head.state):
            kept.close()
        elif upload is not None:
            if upload.quarantine is not None:
                self.states.bring(upload.quarantine.small_files)
            upload.leave()
        if made is not None:
            return CommitOutcome(head.state, made.outcome, changed=False)
        return CommitOutcome(head.state, planned.entry.outcomes, changed=True)

    def _is_known(self, state: State) -> bool:
        """Tell whether a state names the pack of this commit, so that a record with it was published."""
        entry = None if self.upload is None else self.upload.entry
        return entry is not None and (entry.name in state.dropped or any(entry.name == p.name for p in state.packs))

    def _written_down(self, planned: PlannedCommit) -> list[Step]:
        """Append the trailer to the pack and sync it. Return the steps that move the pack to `packs`; none if it was
        moved before."""
        if self.upload is None:
            return []
        state = planned.state
        incarnation = state.incarnation or self._incarnation
        self.upload.write_down(Trailer(incarnation, state.version, state.hash, planned.entry))
        quarantine = self.upload.quarantine
        return [] if quarantine is None else quarantine.moves()

    def _moved_in(self, planned: PlannedCommit, head: Head | None) -> tuple[Head, LastLook | None]:
        """Move the pack to `packs`, check that the head is still the newest, and perform the last look, in one round
        trip. Return the newest head, and the last look if it was performed after the head was read."""
        moves, last = self._written_down(planned), self._last_look(planned)
        if planned.transaction.created is not None or self.log.lacks_folders:
            head = head or self.place.first
            moves = [*self._drafted(head, planned), *moves]
            head, is_last = self.log.look_between(head, moves, last.steps, self.place.perform)
            self.log.lacks_folders = False
            if self.place.is_taken:  # Records after the first may have been made, and deleted again.
                head, is_last = self.log.look(), False
        elif head is not None and not last.steps:  # A newer state is noticed when the record is published.
            return head, None
        else:
            head, is_last = self.log.look_between(head, [*self._drafted(head, planned), *moves], last.steps)
        return head, last if is_last else None

    def _drafted(self, head: Head | None, planned: PlannedCommit) -> list[Step]:
        """Return the step that writes the record to a temporary file; none if the store is not remote."""
        if head is not None and is_remote(self.log.folder):
            with contextlib.suppress(CodedError):  # The error is raised again when the record is made.
                entries = (planned.entry,)
                self._draft = Draft(head.state, planned.entry, following(head.state, self.clock(), entries))
                return [self.log.draft(self._draft.record[0])]
        return []

    def _last_look(self, planned: PlannedCommit) -> LastLook:
        quarantine = None if self.upload is None else self.upload.quarantine
        pack = [] if quarantine is None else [GetStat(quarantine.pack_path)]
        return LastLook(pack, [] if planned.transaction.created is None else [LookBelow()])

    def _check(self, last: LastLook, state: State) -> None:
        """Check that the pack exists, that no record dropped it, and that a new repository's folder contains nothing
        else."""
        upload = self.upload
        gone = next((look.path for look in last.pack if look.result is None), None)
        if gone is not None or (upload is not None and upload.entry is not None and upload.entry.name in state.dropped):
            raise TransportFailed(
                gone or last.pack[0].path, "deleted as abandoned while this process was stopped; try again"
            )
        for below in last.below:
            self.place.check_below(below, takes_numbers=True)

    def _planned(self, stored: OpenedState) -> PlannedCommit | CommitOutcome:
        """Plan the change on a state. Return the outcome if the state needs no change, or the request was committed
        before."""
        head, snapshot, upload = stored.head, stored.snapshot, self.upload
        first = earlier(head, self.clock, self.request, self.age)
        if first is not None:
            return first
        is_stale = upload is not None and upload.stale(snapshot)
        if upload is None:
            transaction = Transaction(self.path, snapshot, (), self.place.line, self.allowance)
        else:
            came, own_meta, fact = upload.graph() or (), upload.own_meta, upload.fact
            transaction = Transaction(self.path, snapshot, came, self.place.line, self.allowance, own_meta, fact)
        outcome = self.plan(transaction)
        if upload is not None:
            unwanted = transaction.unreached_new()
            if is_stale or unwanted != upload.unwanted:
                upload.check_again(transaction, self.progress, unwanted)
        transaction.prove_tips()
        self.approve(transaction)
        brought = None if upload is None else upload.entry
        if not transaction.changed and brought is None:
            if snapshot is None:
                raise NoSuchRepository(self.path)
            return CommitOutcome(snapshot.state, outcome, changed=False)
        if snapshot is None and transaction.created is None:
            raise NoSuchRepository(self.path)
        state, request, user = head.state, self.request, self.user
        entry = entry_of(transaction, state, request, user, outcome, brought, self._incarnation, self.options)
        return PlannedCommit(state, transaction, entry)


def earlier(head: Head, clock: Callable[[], float], request: bytes, age: int) -> CommitOutcome | None:
    """Return the outcome of a repeated request; None if the request was not carried out before. `age`: milliseconds
    since the first sending, 0 for the first sending. Raise OutcomeUnknown if the log does not reach back so far."""
    found = head.state.history.find(request)
    if found is not None:
        return CommitOutcome(head.state, found.outcomes, changed=False)
    if age > 0 and int(clock() * 1000) - age < head.state.history.horizon.since:
        raise OutcomeUnknown("the log no longer has the time of the first attempt")
    return None
