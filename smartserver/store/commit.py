"""`Commit`: one request on its way into the log.

It is planned on the newest state (refusals touch nothing). The entry is written down behind the pack, the pack is moved
among the others, and a record is appended that names it. Where another writer was first, the plan is made again on what
he left; where he brought some of it, the body is checked again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from smartserver.errors import NoSuchRepository, OutcomeUnknown
from smartserver.spans import Part, span
from smartserver.store.allowance import Allowance
from smartserver.store.creation import Creation
from smartserver.store.draft import entry_of, following
from smartserver.store.log import Head, Log
from smartserver.store.model import Changes, RootVersion
from smartserver.store.record import NOTHING, Entry, Record
from smartserver.store.state import State
from smartserver.store.states import States, Stored
from smartserver.store.trailer import Trailer
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Report, Upload
from transports.errors import TransportFailed
from transports.steps import GetStat

Plan = Callable[[Transaction], bytes]
"""Changes a transaction and gives the encoded outcomes, for the log; whatever it raises ends the commit."""


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

    def changes_since(self, known: RootVersion | None) -> Changes:
        """What changed since the version a client knows; everything when that cannot be told."""
        return self.state.changes_since(known)


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
    _incarnation: bytes = field(init=False)
    """Of a repository that it makes."""

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
            with span(Part.DISK, "read the log"):
                stored = self.states.read()
            with span(Part.SERVER, "plan"):
                planned = self._planned(stored)
            if not isinstance(planned, PlannedCommit):
                if stored.latest.head is not None:
                    self.log.make_durable(stored.latest.head)
                return planned
            self.progress("commit", 0, 0)
            return self._append(planned, stored.latest.head, undo)

    def _append(self, planned: PlannedCommit, head: Head | None, undo: contextlib.ExitStack) -> CommitOutcome:
        """Append the record of a change."""
        upload = self.upload
        if planned.transaction.created is not None or self.log.lacks_folders:
            self.place.make()
        self._publish_pack(planned)
        if upload is not None or head is None:
            head = self.log.look()
        made: CommitOutcome | None = None

        def judge(state: State) -> tuple[bytes, State] | None:
            nonlocal planned, made
            made = None
            if state.hash != planned.state.hash:
                again = self._planned(self.states.read_at(Head(state)))
                if not isinstance(again, PlannedCommit):
                    made = again
                    return None
                planned = again
                self._publish_pack(planned)  # What was checked again is another pack.
            if planned.transaction.created is not None:
                self.place.check_below()
            self._check_pack(state)
            record = Record(
                number=state.version + 1, parent=state.hash, time=int(self.clock() * 1000), entries=(planned.entry,)
            )
            return following(state, record)

        # From here on nothing may be deleted, whatever interrupts, unless it surely changed nothing.
        kept = undo.pop_all()
        try:
            with span(Part.DISK, "append to the log"):
                head = self.log.append(head, judge)
        except (OutcomeUnknown, KeyboardInterrupt, SystemExit):
            if upload is not None:
                upload.leave()
            raise
        except BaseException:
            kept.close()
            raise
        if made is not None and not self._is_known(head.state):
            kept.close()
        elif upload is not None:
            upload.leave()
        return made or CommitOutcome(head.state, planned.entry.outcomes, changed=True)

    def _is_known(self, state: State) -> bool:
        """Whether a state names the own pack: what answers the request is its own record, of which it was not known
        whether it was published."""
        entry = None if self.upload is None else self.upload.entry
        return entry is not None and (entry.name in state.dropped or any(entry.name == p.name for p in state.packs))

    def _publish_pack(self, planned: PlannedCommit) -> None:
        """Write the entry behind the pack and move it among the packs, unless that was done."""
        if self.upload is not None:
            state = planned.state
            incarnation = state.incarnation or self._incarnation
            self.upload.write_down(Trailer(incarnation, state.version, state.hash, planned.entry))
            with span(Part.DISK, "move the pack"):
                self.log.folder.perform(self.upload.publication())

    def _check_pack(self, state: State) -> None:
        """See that the pack is there, and that no record dropped it: only after the state was read."""
        upload = self.upload
        if upload is None or upload.entry is None:
            return
        looks = [GetStat(path) for path in upload.published]
        self.log.folder.perform(looks)
        gone = next((look.path for look in looks if look.result is None), None)
        if gone is not None or upload.entry.name in state.dropped:
            raise TransportFailed(gone or upload.published[0], "swept while its writer was stopped; try again")

    def _planned(self, stored: Stored) -> PlannedCommit | CommitOutcome:
        """The change on top of a state; the answer where there is none to make, or it was made before."""
        head, snapshot, upload = stored.latest.head, stored.snapshot, self.upload
        first = earlier(head, self.clock, self.request, self.age)
        if first is not None:
            return first
        stale = upload is not None and upload.stale(snapshot)
        if upload is None:
            transaction = Transaction(self.path, snapshot, (), self.place.line, self.allowance)
        else:
            came, own_meta, fact = upload.graph() or (), upload.own_meta, upload.fact
            transaction = Transaction(self.path, snapshot, came, self.place.line, self.allowance, own_meta, fact)
        outcome = self.plan(transaction)
        if stale and upload is not None:
            upload.check_again(transaction, self.progress)
        transaction.prove_tips()
        brought = None if upload is None else upload.entry
        if not transaction.changed and brought is None:
            if snapshot is None:
                raise NoSuchRepository(self.path)
            return CommitOutcome(snapshot.state, outcome, changed=False)
        if snapshot is None and transaction.created is None:
            raise NoSuchRepository(self.path)
        state = NOWHERE if head is None else head.state
        entry = entry_of(transaction, state, self.request, self.user, outcome, brought, self._incarnation)
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
