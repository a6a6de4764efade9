"""`Commit`: one request on its way into the root.

Each attempt goes: plan on a state that was read (refusals touch nothing), check the body again where another writer has
brought some of it, write down what is about to be done, move the pack among the others, and swap the root under the
lock. Where another writer was first, the plan is made again on what he left, under the lock; only what takes long is
left to another attempt. A new repository that is made beside its place is renamed to it instead of a swap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from smartserver.errors import InvalidPath, LimitExceeded, NoSuchRepository, OutcomeUnknown
from smartserver.spans import Part, span
from smartserver.store.allowance import Allowance
from smartserver.store.creation import Creation
from smartserver.store.document import empty_root
from smartserver.store.intent import encode_intent, intent_path
from smartserver.store.model import Changes, RootVersion
from smartserver.store.root import DraftRoot, RootView, next_root, tombstone
from smartserver.store.states import State, States
from smartserver.store.swap import RootFile, Swap
from smartserver.store.swap_log import NewLogEntry
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Report, Upload
from transports.errors import CodedError, TransportError

Plan = Callable[[Transaction], bytes]
"""Changes a transaction and gives the encoded outcomes, for the log; whatever it raises ends the commit."""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """A request that was carried out, now or before."""

    view: RootView
    outcome: bytes
    """What the plan gave, the first time."""
    swapped: bool
    """Whether this call changed the root."""

    def changes_since(self, known: RootVersion | None) -> Changes:
        """What changed since the root a client knows; everything when that cannot be told."""
        return self.view.changes_since(known)


class PlannedCommit(NamedTuple):
    """A change that was planned on one state, and is to be made."""

    transaction: Transaction
    outcome: bytes
    draft: DraftRoot


@dataclass(slots=True)
class Commit:
    """The attempts to carry out one request: of a `PackRepository` what they use, then what its `commit` is given."""

    file: RootFile
    states: States
    clock: Callable[[], float]
    request: bytes
    age: int
    user: str
    plan: Plan
    upload: Upload | None
    progress: Report
    allowance: Allowance | None
    _incarnation: bytes = field(init=False)
    """Of a repository that it makes."""
    _place: Creation = field(init=False)
    _undo: contextlib.ExitStack = field(init=False, default_factory=contextlib.ExitStack)
    """Deletes what was written, as long as surely no root names it."""

    def __post_init__(self) -> None:
        self._incarnation, self._place = self.file.randomness(16), Creation(self.file)

    def run(self) -> CommitOutcome:
        """Try until it is carried out, or refused.

        Raises:
            CodedError: as `PackRepository.commit`.
        """
        with self._undo:
            self._undo.callback(self._place.give_up_place)
            if self.upload is not None:
                self._undo.callback(self.upload.abandon)
            # Behind a link what the request began with will do: it is compared with the root under the lock.
            done = self._attempt(self.states.take_reusable())
            while done is None:  # Each time another writer has brought some of what the body has.
                done = self._attempt(None)
        return done

    def _attempt(self, known: State | None) -> CommitOutcome | None:
        """Try once; None where that is to be done again. `known`: what was read before; only a change is planned on
        that, and what is refused or changes nothing is planned on what is there now."""
        with span(Part.DISK, "read the root"):
            state = known or self.states.read(durable=True)
        try:
            with span(Part.SERVER, "plan"):
                planned = self._planned(state)
        except CodedError:
            if known is None:
                raise
            return None
        if not isinstance(planned, PlannedCommit):
            return None if known is not None else planned
        self.progress("commit", 0, 0)
        upload = self.upload
        if upload is not None:
            upload.write_down(planned.draft.intent())
        if planned.transaction.created is not None:
            creation = Creation(self.file) if upload is None else upload.creation
            if state.root is None and creation.beside():
                with span(Part.DISK, "create the repository"):
                    return self._create(creation, planned)
            vcs, kinds, _ = planned.transaction.created
            self._place.hold_place(vcs, kinds)
        publication = upload.publication(self.file.path) if upload is not None else []
        published = upload.published if upload is not None else []
        with contextlib.ExitStack() as until:
            try:
                swap = until.enter_context(self.file.swapping(publication, published))
            except NoSuchRepository:
                if planned.transaction.created is not None:
                    # Another creation of the same place was refused and took the tombstone away. So is this one.
                    self._place.hold_place(*planned.transaction.created[:2])
                raise
            if state.root != swap.current:  # All of it: a restored backup reaches a version for the second time.
                state = self.states.open(swap.current)
                again = self._planned(state, locked=True)
                if not isinstance(again, PlannedCommit):
                    return again
                planned = again
            if swap.current.deleted:
                self._place.check_swap()
            with span(Part.DISK, "swap the root"):
                view = self._swap(swap, state, planned.draft)
        if upload is not None:
            upload.leave()
        return CommitOutcome(view, planned.outcome, swapped=True)

    def _planned(self, state: State, *, locked: bool = False) -> PlannedCommit | CommitOutcome | None:
        """The change on top of a state; the answer where there is none to make, or it was made before. None: the body
        must be checked again without the lock, because that may take minutes."""
        first = earlier(self.file, self.clock, state, self.request, self.age)
        if first is not None:
            return first
        upload = self.upload
        stale = upload is not None and upload.stale(state.snapshot)
        if stale and locked:
            return None
        file = self.file
        if upload is None:
            transaction = Transaction(file.path, state.snapshot, (), file.line, self.allowance)
        else:
            came, own_meta, fact = upload.graph() or (), upload.own_meta, upload.fact
            transaction = Transaction(file.path, state.snapshot, came, file.line, self.allowance, own_meta, fact)
        outcome = self.plan(transaction)
        if stale and upload is not None:
            upload.check_again(transaction, self.progress)
        transaction.prove_tips()
        if not transaction.changed and (upload is None or upload.entry is None):
            view = self._view(state)
            file.make_durable(view.root)
            return CommitOutcome(view, outcome, swapped=False)
        return PlannedCommit(transaction, outcome, self._draft(state, transaction, outcome))

    def _draft(self, state: State, transaction: Transaction, outcome: bytes) -> DraftRoot:
        """The root after a transaction."""
        now, entry, randomness = self.clock(), NewLogEntry(self.user, self.request, outcome), self.file.randomness
        if transaction.deleted:
            return tombstone(self._view(state), now=now, log=entry, randomness=randomness)
        settings, dropped = transaction.setting_changes, []
        if transaction.created is None:
            view = self._view(state)
        else:
            vcs, kinds, made = transaction.created
            settings = {**made}
            view = RootView(empty_root(self._incarnation, vcs, kinds, now=now, over=state.root), self.file.folder)
            dropped = [file.name for file in state.root.log_files] if state.root is not None else []
        brought = None if self.upload is None else self.upload.entry
        return next_root(
            view,
            now=now,
            log=entry,
            packs=view.root.packs if brought is None else (*view.root.packs, brought),
            refs=transaction.changes,
            maps=transaction.entries,
            declare=transaction.declared,
            settings=settings,
            dropped=dropped,
            randomness=randomness,
        )

    def _view(self, state: State) -> RootView:
        if state.view is None or state.snapshot is None:
            raise NoSuchRepository(self.file.path)
        return state.view

    def _create(self, creation: Creation, planned: PlannedCommit) -> CommitOutcome | None:
        """Make the repository beside its place, and give it that; None where something is there by now."""
        self._undo.callback(creation.undo)
        creation.choose()
        upload = self.upload
        publication = [] if upload is None else upload.publication(creation.home)
        if upload is not None and upload.quarantined:  # Its folder goes before others see the repository.
            self.file.above.perform(publication)
            publication = []
            upload.vacate()
        root, files = planned.draft.finish()
        kept = self._undo.pop_all()  # From here on only what surely changed nothing may delete the pack.
        try:
            made = creation.finish(root, files, publication)
        except (TransportError, LimitExceeded, InvalidPath):
            kept.close()
            raise
        if not made:
            self._undo.push(kept)
            return None
        return CommitOutcome(RootView(root, self.file.folder), planned.outcome, swapped=True)

    def _swap(self, swap: Swap, state: State, draft: DraftRoot) -> RootView:
        root, files = draft.finish()
        intent, upload = draft.intent(), self.upload
        noted = upload is not None and upload.intent is not None and upload.intent.is_same_change(intent)
        changes = intent.entry is not None and intent.entry.changes
        # No older root can be put back over a first one.
        if changes and not noted and not root.deleted and root.version > 1:
            files.append((intent_path(root.version, self.file.randomness(8)), encode_intent(intent)))
        swap.replace_with_pack(root, files, self._undo, upload.leave if upload is not None else lambda: None)
        return RootView(root, self.file.folder, state.view)


def earlier(file: RootFile, clock: Callable[[], float], state: State, request: bytes, age: int) -> CommitOutcome | None:
    """What became of a request that is repeated; `age`: milliseconds since its first sending, 0 for the first.

    Raises:
        OutcomeUnknown: the log does not reach back to it.
        CorruptFile, TransportError: the log cannot be read.
    """
    if state.view is None:
        return None
    found = state.view.find_request(request, in_files=age > 0)
    if found is not None:
        file.make_durable(state.view.root)
        return CommitOutcome(state.view, found.outcomes, swapped=False)
    if age > 0 and not state.view.log_covers(age, clock()):
        raise OutcomeUnknown("the log does not reach back to the request's first sending")
    return None
