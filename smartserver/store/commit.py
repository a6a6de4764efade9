"""`Commit`: one request on its way into the log.

It is planned on the newest state (refusals touch nothing). The entry is written down behind the pack, the pack is moved
among the others, and a record is appended that names it. If another writer was first, the request is planned again on
its state; if that writer brought part of the body, the body is checked again.
"""

# Theory of operation
# ===================
#
# A commit turns one request, whose body is already checked and lies in quarantine, into one record of the log. It
# must give the same result however often it is interrupted and repeated, and it must not hold anything that others
# wait for.
#
# The steps, in the order of `run`:
#
# 1) `_first_plan`: the request's calls run on a `Transaction` over a state. The result is a list of changes, or a
#    refusal. If the state was merely remembered, a refusal does not count, and the newest state is read first.
#    `Judge` has the last word on a plan, once the pack is known to fit it.
# 2) `_brought`: the entry is written behind the pack (its trailer), the pack moves from `incoming` to `packs`, the
#    log is looked at, and the pack is looked at once more. Behind a link all of that is one round trip.
# 3) `_append`: `Group` puts the change into a record together with others that wait, and `Log.append` publishes it.
#    `judge` runs the calls again for each newer state.
# 4) The answer is made from the entry that is in the log. A repeated request gets its first answer (`earlier`).
#
# Rules:
#
# 1) Refused is only what is refused on the newest state.
# 2) The history is asked for the request's id before anything else is done on a new state. If the id is there, this
#    request was carried out by an earlier sending.
# 3) The pack is looked at *after* the state was read and *before* the record is published. A process that was stopped
#    for a day may find that its pack was deleted as a leftover.
# 4) From the moment a record may name the pack, nothing may delete it, unless it is certain that no record does. That
#    is why `_append` takes the clean-up away (`undo.pop_all`) and gives it back only on a clear refusal.
#
# The hard case is a concurrent push that brought some of the same revisions. Their segments must not be stored twice,
# so `_planned` finds the upload stale, `check_again` cuts them out, and the pack has another content and another
# name. `_moves` then gives steps a second time. The revisions of refused refs are cut out in the same way: if they were
# stored, anybody could fetch them by id. If that ref is accepted on a newer state, the client is told that they are
# missing.
#
# What is ugly: the three closures in `_append` share `planned`, `made` and `last`. `judge` may run in another thread,
# that of the change that appends the record, but never twice at once.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from smartserver.errors import NoSuchRepository, OutcomeUnknown
from smartserver.spans import Part, span
from smartserver.store.allowance import Allowance
from smartserver.store.creation import Creation
from smartserver.store.draft import entry_of
from smartserver.store.far import is_far
from smartserver.store.group import Draft, Group
from smartserver.store.log import Log
from smartserver.store.log_view import Head
from smartserver.store.record import NOTHING, Entry
from smartserver.store.remains import LookBelow
from smartserver.store.state import State
from smartserver.store.states import OpenedState, RepositoryLook, States
from smartserver.store.trailer import Trailer
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Report, Upload
from transports.base import Step
from transports.errors import CodedError, TransportError, TransportFailed
from transports.steps import GetStat

Plan = Callable[[Transaction], bytes]
"""Changes a transaction and gives the encoded outcomes, for the log; whatever it raises ends the commit."""

Judge = Callable[[Transaction], None]
"""Looks at a transaction that is planned, proved and about to be made; whatever it raises ends the commit."""


class PlanAgain(Exception):
    """A judge raises it to leave a commit: nothing is done now, and the upload stays as it is for another commit."""


def unjudged(transaction: Transaction) -> None:
    """Accept every transaction."""


NOWHERE = State(0, NOTHING)
"""Where no repository was ever made."""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """A request that was carried out, now or before."""

    state: State
    outcome: bytes
    """What the plan gave, the first time."""
    changed: bool
    """Whether this call changed the repository."""


class LastLook(NamedTuple):
    """What is looked at after the state was read, and before the record that follows it is published."""

    pack: list[GetStat]
    """That of the request's pack."""
    below: list[LookBelow]
    """The folder of a new repository."""

    @property
    def steps(self) -> list[Step]:
        """All of it."""
        return [*self.pack, *(step for look in self.below for step in look.steps)]


class PlannedCommit(NamedTuple):
    """A change that was planned on a state, and is to be made."""

    state: State
    transaction: Transaction
    entry: Entry


@dataclass(slots=True)
class Commit:
    """The carrying out of one request: of a `PackRepository` what it uses, then what its `commit` is given."""

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
    look: RepositoryLook | None
    judge: Judge
    options: tuple[str, ...]
    _incarnation: bytes = field(init=False)
    """Of a repository that it makes."""
    _draft: Draft | None = field(init=False, default=None)
    """The record that was written down with the pack."""

    def __post_init__(self) -> None:
        self._incarnation = self.randomness(16)

    def run(self) -> CommitOutcome:
        """Carry it out.

        Raises:
            CodedError: as `PackRepository.commit`.
        """
        with contextlib.ExitStack() as undo:
            if self.upload is not None:
                undo.callback(self.upload.abandon)
            try:
                stored, planned = self._first_plan()
            except PlanAgain:
                undo.pop_all()
                raise
            if not isinstance(planned, PlannedCommit):
                if stored.latest.head is not None:
                    self.log.make_durable(stored.latest.head)
                return planned
            self.progress("commit", 0, 0)
            try:
                return self._append(planned, stored.latest.head, undo)
            finally:
                if self._draft is not None:
                    self.log.discard_draft(self._draft.record[0])

    def _first_plan(self) -> tuple[OpenedState, PlannedCommit | CommitOutcome]:
        """The change on the newest state. It is planned on the state that the request saw, or that is known where it
        brings a pack: whether that is the newest is seen when the pack is moved or the record is published. But it is
        refused on the newest alone."""
        brings = self.upload is not None and self.upload.entry is not None
        look = RepositoryLook(self.log.known) if brings else self.look
        if look is not None:
            known = self.states.read(look)
            with contextlib.suppress(CodedError), span(Part.SERVER, "plan"):
                return known, self._planned(known)
        with span(Part.DISK, "read the log"):
            stored = self.states.read()
        with span(Part.SERVER, "plan"):
            return stored, self._planned(stored)

    def _append(self, planned: PlannedCommit, head: Head | None, undo: contextlib.ExitStack) -> CommitOutcome:
        """Append the record of a change."""
        upload = self.upload
        with span(Part.DISK, "move the pack"):
            head, last = self._brought(planned, head)
        made: CommitOutcome | None = None
        seen = head.state.hash

        def looks(state: State) -> Sequence[Step]:
            nonlocal last
            if last is not None and state.hash == seen:
                return ()
            last = self._last_look(planned)
            return last.steps

        def judge(state: State) -> Entry | None:
            nonlocal planned, made, last
            made = None
            if state.hash != planned.state.hash:
                # The entries are asked before anything is read: a failure must not hide that it was done.
                known = earlier(Head(state), self.clock, self.request, self.age)
                again = known or self._planned(self.states.read_at(Head(state)))
                if not isinstance(again, PlannedCommit):
                    made = again
                    return None
                planned = again
            moves = self._moves(planned)
            if last is None or moves:  # What landed meanwhile was cut out of the pack.
                last = self._last_look(planned)
                self.log.folder.perform([*moves, *last.steps])
            self._check(last, state)
            last = None  # The next time all of it is looked at again.
            return planned.entry

        # From here on nothing may be deleted, whatever interrupts, unless it surely changed nothing.
        kept = undo.pop_all()
        try:
            with span(Part.DISK, "append to the log"):
                head = self.group.append(head, judge, looks, self._draft)
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
            self.states.bring(upload.small_files)
            upload.leave()
        if made is not None:
            return CommitOutcome(head.state, made.outcome, changed=False)
        return CommitOutcome(head.state, planned.entry.outcomes, changed=True)

    def _is_known(self, state: State) -> bool:
        """Whether a state names the own pack: what answers the request is its own record, of which it was not known
        whether it was published."""
        entry = None if self.upload is None else self.upload.entry
        return entry is not None and (entry.name in state.dropped or any(entry.name == p.name for p in state.packs))

    def _moves(self, planned: PlannedCommit) -> list[Step]:
        """Write the entry down behind the pack; the steps that move that among the others, none where that was done."""
        if self.upload is None:
            return []
        state = planned.state
        incarnation = state.incarnation or self._incarnation
        self.upload.write_down(Trailer(incarnation, state.version, state.hash, planned.entry))
        return self.upload.publication()

    def _brought(self, planned: PlannedCommit, head: Head | None) -> tuple[Head, LastLook | None]:
        """Move the pack among the others, see that the head is the newest still, and take the last look, in one trip.
        The newest head, and the last look if that came after the head was read."""
        moves, last = self._moves(planned), self._last_look(planned)
        if planned.transaction.created is not None or self.log.lacks_folders:
            head = head or self.place.first
            moves = [*self._drafted(head, planned), *moves]
            head, is_last = self.log.look_between(head, moves, last.steps, self.place.perform)
        elif head is not None and not last.steps:  # It is seen when the record is published.
            return head, None
        else:
            head, is_last = self.log.look_between(head, [*self._drafted(head, planned), *moves], last.steps)
        return head, last if is_last else None

    def _drafted(self, head: Head | None, planned: PlannedCommit) -> list[Step]:
        """Behind a link, write the record down in the trip in which the pack is moved."""
        if head is not None and is_far(self.log.folder):
            with contextlib.suppress(CodedError):  # It is told when the record is made.
                self._draft = self.group.draft(head.state, planned.entry)
                return [self.log.draft(self._draft.record[0])]
        return []

    def _last_look(self, planned: PlannedCommit) -> LastLook:
        upload = self.upload
        pack = [] if upload is None else [GetStat(path) for path in upload.published]
        return LastLook(pack, [] if planned.transaction.created is None else [LookBelow()])

    def _check(self, last: LastLook, state: State) -> None:
        """See that the pack is there, that no record dropped it, and that a new repository lies around no other."""
        upload = self.upload
        gone = next((look.path for look in last.pack if look.result is None), None)
        if gone is not None or (upload is not None and upload.entry is not None and upload.entry.name in state.dropped):
            raise TransportFailed(gone or last.pack[0].path, "swept while its writer was stopped; try again")
        for below in last.below:
            self.place.check_below(below)

    def _planned(self, stored: OpenedState) -> PlannedCommit | CommitOutcome:
        """The change on top of a state; the answer where there is none to make, or it was made before."""
        head, snapshot, upload = stored.latest.head, stored.snapshot, self.upload
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
            unwanted = transaction.unreached()
            if is_stale or unwanted != upload.unwanted:
                upload.check_again(transaction, self.progress, unwanted)
        transaction.prove_tips()
        self.judge(transaction)
        brought = None if upload is None else upload.entry
        if not transaction.changed and brought is None:
            if snapshot is None:
                raise NoSuchRepository(self.path)
            return CommitOutcome(snapshot.state, outcome, changed=False)
        if snapshot is None and transaction.created is None:
            raise NoSuchRepository(self.path)
        state = NOWHERE if head is None else head.state
        entry = entry_of(transaction, state, self.request, self.user, outcome, brought, self._incarnation, self.options)
        return PlannedCommit(state, transaction, entry)


def earlier(head: Head | None, clock: Callable[[], float], request: bytes, age: int) -> CommitOutcome | None:
    """What became of a request that is repeated; `age`: milliseconds since its first sending, 0 for the first.

    Raises:
        OutcomeUnknown: the entries do not reach back to it.
    """
    if head is None:
        return None
    found = head.state.history.find(request)
    if found is not None:
        return CommitOutcome(head.state, found.outcomes, changed=False)
    if age > 0 and not head.state.history.covers(age, int(clock() * 1000)):
        raise OutcomeUnknown("the log does not reach back to the request's first sending")
    return None
