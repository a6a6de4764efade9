"""`PackRepository`: one repository on one file store, for several threads and processes at once.

A change goes: plan on a snapshot (refusals touch nothing), body checked in quarantine, pack durable and moved among the
packs, then the root is swapped under the lock; where another writer was first, the plan is made again on what it left.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from smartserver.errors import CorruptFile, InvalidPath, LimitExceeded, NoSuchRepository, OutcomeUnknown
from smartserver.records.faults import SAFE, Policy
from smartserver.records.model import Announced
from smartserver.store import recovery, upkeep
from smartserver.store.allowance import Allowance
from smartserver.store.caches import TextCache
from smartserver.store.creation import Creation, instead
from smartserver.store.document import PackEntry, empty_root
from smartserver.store.format import ROOT, Discipline, Format
from smartserver.store.index_build import Pace, unpaced
from smartserver.store.intent import encode_intent, intent_path
from smartserver.store.lock_folder import Holder
from smartserver.store.log import NewLogEntry
from smartserver.store.model import Changes, PackReport, Seen, VerifyReport
from smartserver.store.quarantine import Quarantine
from smartserver.store.repack import AHEAD, rows
from smartserver.store.root import DraftRoot, RootView, next_root, tombstone
from smartserver.store.snapshot import Snapshot
from smartserver.store.states import Look, State, States
from smartserver.store.swap import RootFile, Swap
from smartserver.store.transaction import RepositoryTransaction
from smartserver.store.upload import Report, Upload, unreported
from smartserver.store.verify import verify
from transports.base import Transport
from transports.errors import CodedError, TransportError

Plan = Callable[[RepositoryTransaction], bytes]
"""Changes a transaction and gives the encoded outcomes, for the log; whatever it raises ends the commit."""

COLLECT_INTERVAL = 3600.0
"""Seconds between two searches for leftovers in passing: each lists every file, and what it finds is a day old."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A request that was carried out, now or before."""

    view: RootView
    outcome: bytes
    """What the plan gave, the first time."""
    swapped: bool
    """Whether this call changed the root."""

    def changes_since(self, known: Seen | None) -> Changes:
        """What changed since the root a client knows; everything when that cannot be told."""
        return self.view.changes_since(known)


class PackRepository:
    """The repository at `path` below `transport`, or the place where one can be made."""

    def __init__(
        self,
        transport: Transport,
        path: str = "",
        *,
        discipline: Discipline | None = None,
        clock: Callable[[], float] = time.time,
        randomness: Callable[[int], bytes] = os.urandom,
        texts: TextCache | None = None,
        policy: Policy = SAFE,
    ) -> None:
        """`discipline`: how its root will be swapped if it is made here; None: `file` where the store can lock files,
        else `folder`. `clock`: seconds since the epoch; `texts`: a cache to share with other repositories. `policy`:
        what is done about faults of new records.
        """
        self.path = path
        self.folder = transport.child(path) if path else transport
        """The repository's own folder."""
        self._above = transport
        self.file = RootFile(transport, path, discipline=discipline, randomness=randomness)
        """Its root."""
        self.clock = clock
        self.randomness = randomness
        self._states = States(self.file, texts if texts is not None else TextCache())
        self._policy = policy
        self._repacking = threading.Lock()
        self._awaited = threading.Event()
        """Somebody waits for the repack that is being made."""
        self._collected: float | None = None

    # -- reading

    def exists(self) -> bool:
        """Whether there is a repository; a deleted one is none.

        Raises:
            CorruptFile, Unsupported: its root cannot be read.
            TransportError: the store failed.
        """
        return self._states.look().exists

    def deleted(self) -> bool:
        """Whether there was a repository, and its log still is.

        Raises:
            CorruptFile, Unsupported: its root cannot be read.
            TransportError: the store failed.
        """
        root = self._states.look().root
        return root is not None and root.deleted and bool(root.log or root.log_files)

    def format(self) -> Format:
        """The format it has on disk.

        Raises:
            NoSuchRepository: there is none.
            CorruptFile, Unsupported: it cannot be read.
            TransportError: the store failed.
        """
        found = self.file.format()
        if found is None:
            raise NoSuchRepository(self.path)
        return found

    def instead(self) -> str:
        """What lies where no repository is, for a message, which names the tool; empty where nothing does."""
        return instead(self._above, self.path)

    def has_place(self) -> bool:
        """Whether the folder below which all paths lie is there."""
        return self._above.exists("")

    def snapshot(self) -> Snapshot:
        """The repository as it is now; the root is read each time, what did not change is taken over.

        Raises:
            NoSuchRepository: there is none.
            CorruptFile, Unsupported: its root, or a pack and its index, cannot be read.
            TransportError: the store failed.
        """
        found = self._states.read().snapshot
        if found is None:
            raise NoSuchRepository(self.path)
        return found

    def changes_since(self, known: Seen | None) -> Changes:
        """What changed since the root a client knows; everything when that cannot be told.

        Raises:
            NoSuchRepository: there is none.
            CorruptFile, Unsupported, TransportError: as `snapshot`.
        """
        return self.snapshot().view.changes_since(known)

    def verify(self, progress: Callable[[int, int], None] = lambda done, total: None) -> VerifyReport:
        """Read and check everything; damage is reported, never raised. `progress`: bytes done, bytes in all.

        Raises:
            NoSuchRepository: there is none.
            Unsupported: this release cannot read it.
            TransportFailed: the store cannot be reached, or no more, and no damage was found before.
        """
        report = verify(self.file, progress)
        with contextlib.suppress(CorruptFile, TransportError):  # That damage is in the report.
            lost = [change for change in recovery.find(self.file).changes if not change.elsewhere]
            made = sum(change.made for change in lost)
            what = f"{ROOT}: changes that were made and that it does not know: {made} (smartserver recover lists them)"
            problems = (*report.problems, what) if made else report.problems
            return msgspec.structs.replace(report, problems=problems, lost=len(lost))
        return report

    # -- changing

    def look(self, seen: Seen | None = None) -> Look:
        """Whether it is there, as a request begins. `seen`: as of `States.look`.

        Raises:
            CorruptFile, Unsupported: its root cannot be read.
            TransportError: the store failed.
        """
        return self._states.look(seen)

    def begin(
        self,
        request: bytes,
        user: str,
        announced: Sequence[Announced] = (),
        look: Look | None = None,
        allowance: Allowance | None = None,
    ) -> RepositoryTransaction:
        """A transaction on the repository as `look` saw it, or as it is now. The repository need not exist.

        `allowance`: the limits of the request; unlimited where it is left out.

        Raises:
            CorruptFile, Unsupported, TransportError: as `snapshot`.
        """
        snapshot = self._states.read(look).snapshot
        return RepositoryTransaction(self.path, snapshot, announced, self.file.line, allowance)

    def receive(
        self,
        transaction: RepositoryTransaction,
        graph_first: bool = False,
        request: bytes = b"",
        policy: Policy | None = None,
    ) -> Upload:
        """A place for the body of a request; nothing is written before its first new segment. `policy`: in place of the
        repository's.

        Raises:
            NoSuchRepository: there is none, and `transaction` makes none.
        """
        if not transaction.exists:
            raise NoSuchRepository(self.path)
        creation = Creation(self.file)
        return Upload(
            transaction,
            partial(self._quarantine, request, creation),
            graph_first=graph_first,
            creation=creation,
            policy=policy or self._policy,
        )

    def earlier(self, request: bytes, age: int) -> Committed | None:
        """What became of a request that is repeated; `age`: milliseconds since its first sending, 0 for the first.

        Raises:
            OutcomeUnknown: the log does not reach back to it.
            CorruptFile, TransportError: the log cannot be read.
        """
        return self._earlier(self._states.read(), request, age)

    def commit(
        self,
        request: bytes,
        age: int,
        user: str,
        plan: Plan,
        upload: Upload | None = None,
        progress: Report = unreported,
        allowance: Allowance | None = None,
    ) -> Committed:
        """Carry out a request: one swap, or none where nothing changes. A repeat gets the first answer.

        `upload` is finished, and given up afterwards whatever happens. `plan` may be called several times. `progress`:
        what is being done, how much of it is, and of how much (0: not known). `allowance`: as of `begin`.

        Raises:
            OutcomeUnknown: it may have been carried out.
            NestedRepository, InvalidPath: a repository cannot be made there.
            MissingBase, MissingParents, ...: what landed meanwhile made the body unsound.
            Locked: another writer does not let go of the lock; nothing changed.
            NoSuchRepository: it went away meanwhile, and `plan` makes none.
            LimitExceeded: the root would take more than 64 KiB; nothing changed.
            CorruptFile, Unsupported, TransportError: as `snapshot`; nothing changed.
        """
        incarnation, place = self.randomness(16), Creation(self.file)
        with contextlib.ExitStack() as undo:
            undo.callback(place.give_up_place)
            if upload is not None:
                undo.callback(upload.abandon)
            begun = self._states.take_begun()
            while True:  # Each time round, another writer has brought some of what the body has.
                # Behind a link what the request began with will do: it is compared with the root under the lock.
                known, begun = begun, None
                state = known or self._states.read(durable=True)
                first = self._earlier(state, request, age)
                if first is not None:
                    return first
                try:
                    transaction, outcome = self._plan(state, plan, upload, allowance)
                except CodedError:
                    if known is None:
                        raise
                    continue
                if upload is not None and upload.stale(state.snapshot):
                    upload.check_again(transaction, progress)
                if not _changes(transaction, upload):
                    if known is not None:
                        continue
                    return self._unchanged(state, outcome)
                progress("commit", 0, 0)
                entry = NewLogEntry(user, request, outcome)
                draft = self._next(state, transaction, upload, entry, incarnation)
                if upload is not None:
                    upload.write_down(draft.intent())
                if transaction.created is not None:
                    creation = Creation(self.file) if upload is None else upload.creation
                    if state.root is None and creation.beside():
                        view = self._create(creation, draft, upload, undo)
                        if view is None:
                            continue  # Something is there by now.
                        return Committed(view, outcome, swapped=True)
                    vcs, kinds, _ = transaction.created
                    place.hold_place(vcs, kinds)
                publication = upload.publication(self.path) if upload is not None else []
                published = upload.published if upload is not None else []
                with self.file.swapping(publication, published) as swap:
                    if not state.is_of(swap.current):
                        state = self._states.open(swap.current)
                        first = self._earlier(state, request, age)
                        if first is not None:
                            return first
                        if upload is not None and upload.stale(state.snapshot):
                            continue  # Checked again without the lock: it may take minutes.
                        transaction, outcome = self._plan(state, plan, upload, allowance)
                        if not _changes(transaction, upload):
                            return self._unchanged(state, outcome)
                        entry = NewLogEntry(user, request, outcome)
                        draft = self._next(state, transaction, upload, entry, incarnation)
                    if swap.current.deleted:
                        place.check_swap()
                    view = self._swap(swap, state, draft, upload, undo)
                if upload is not None:
                    upload.leave()
                return Committed(view, outcome, swapped=True)

    def delete(self, request: bytes, age: int, user: str, outcome: bytes = b"") -> Committed:
        """Put a tombstone in the root's place; packs go a day later. A repeat gets the first answer.

        Raises:
            NoSuchRepository: there is none.
            OutcomeUnknown: it may have been deleted.
            CorruptFile, Unsupported, TransportError: nothing changed.
        """

        def plan(transaction: RepositoryTransaction) -> bytes:
            transaction.delete()
            return outcome

        return self.commit(request, age, user, plan)

    # -- upkeep

    def repack_if_needed(self, pace: Pace = unpaced) -> bool:
        """Join packs where there are many; False where that is not needed, or another is at it.

        Raises:
            OutcomeUnknown: the packs may have been replaced; both sets of files are there.
            CorruptFile, Unsupported, TransportError: nothing changed.
        """
        if not self._repacking.acquire(blocking=False):
            return False
        try:
            snapshot = self._states.read().snapshot
            if snapshot is None:
                return False
            quarantine = partial(self._quarantine, upkeep.REPACK)
            paced = partial(self._unless_pressed, pace, len(snapshot.packs))
            made = upkeep.repack(self.file, snapshot, quarantine, self.clock, self.randomness, pace=paced)
            return made is not None
        finally:
            self._repacking.release()

    def repack(self, progress: Callable[[int, int], None] = lambda done, total: None) -> PackReport:
        """Join all packs that are there now and may be, however few they are. `progress`: packs joined, packs in all.

        Raises:
            NoSuchRepository: there is none.
            OutcomeUnknown: as `repack_if_needed`.
            CorruptFile, Unsupported, TransportError: what is live is not touched.
        """
        self._awaited.set()
        with self._repacking:
            self._awaited.clear()
            snapshot = self.snapshot()
            packs = snapshot.root.packs
            before = left = len(packs)
            quarantine = partial(self._quarantine, upkeep.REPACK)
            progress(0, before)
            for done in range(rows(packs)):  # Not until there is none: each push that comes makes another.
                if done:
                    snapshot = self.snapshot()
                made = upkeep.repack(self.file, snapshot, quarantine, self.clock, self.randomness, whole=True)
                if made is None:
                    break
                packs = made.packs
                left = min(left, len(packs))  # A push may have come meanwhile.
                progress(before - left, before)
            return PackReport(before, len(packs), sum(entry.length for entry in packs))

    def _unless_pressed(self, pace: Pace, packs: int) -> None:
        """Keep to a pace unless somebody waits for the end, or so many packs came meanwhile that it would fall behind.

        They are seen as requests here read the root, whoever brought them.
        """
        latest = self._states.latest
        if not self._awaited.is_set() and (latest is None or len(latest.packs) < packs + AHEAD):
            pace()

    def tidy(self, pace: Pace = unpaced) -> None:
        """Repack if needed, and collect garbage files if that was not done within the last hour.

        `pace`: as `index_build.Pace`.

        Raises:
            OutcomeUnknown, CorruptFile, Unsupported, TransportError: what is live is not touched.
        """
        long_ago = self._collected is None or self.clock() - self._collected >= COLLECT_INTERVAL
        self.repack_if_needed(pace)
        if long_ago:
            self.collect_garbage_files()

    def collect_garbage_files(self) -> int:
        """Delete what dead writers left and what was dropped a day ago; how many files and folders that was.

        Raises:
            OutcomeUnknown, CorruptFile, Unsupported, TransportError: what is live is not touched.
        """
        self._collected = self.clock()
        try:
            return upkeep.collect(self.file, partial(self._quarantine, upkeep.PROBE), self.clock, self.randomness)
        except NoSuchRepository:  # It went away meanwhile.
            return 0

    def lock_holder(self) -> Holder | None:
        """Who has the repository's lock; None where nobody does.

        Raises:
            NoSuchRepository: there is none.
            Unsupported: its lock is on a file, and ends with its holder.
            CorruptFile, TransportError: its format cannot be read, or the store failed.
        """
        self.format()
        return self.file.publisher.holder()

    def break_lock(self, holder: Holder) -> None:
        """Take the lock from who has it, dead or alive; a live one changes nothing any more.

        Raises:
            NoSuchFile: that one does not have it by now.
            NoSuchRepository, Unsupported, CorruptFile, TransportError: as `lock_holder`.
        """
        self.format()
        self.file.publisher.break_lock(holder)

    # -- steps

    def _earlier(self, state: State, request: bytes, age: int) -> Committed | None:
        if state.view is None:
            return None
        found = state.view.find_request(request, in_files=age > 0)
        if found is not None:
            self.file.make_durable(state.view.root)
            return Committed(state.view, found.outcomes, swapped=False)
        if age > 0 and not state.view.log_covers(age, self.clock()):
            raise OutcomeUnknown("the log does not reach back to the request's first sending")
        return None

    def _unchanged(self, state: State, outcome: bytes) -> Committed:
        """What a request is told that found nothing to change."""
        view = self._view(state)
        self.file.make_durable(view.root)
        return Committed(view, outcome, swapped=False)

    def _plan(
        self, state: State, plan: Plan, upload: Upload | None, allowance: Allowance | None
    ) -> tuple[RepositoryTransaction, bytes]:
        announced = (upload.graph() or ()) if upload is not None else ()
        own_meta = None if upload is None else upload.own_meta
        line = self.file.line
        transaction = RepositoryTransaction(self.path, state.snapshot, announced, line, allowance, own_meta)
        return transaction, plan(transaction)

    def _view(self, state: State) -> RootView:
        if state.view is None or state.snapshot is None:
            raise NoSuchRepository(self.path)
        return state.view

    def _quarantine(self, request: bytes, creation: Creation | None = None) -> Quarantine:
        def prepare() -> str:
            assert creation is not None  # Else it is not asked for.
            creation.prepare()
            return creation.home

        return self.file.publisher.quarantine(request, None if creation is None else prepare)

    def _create(
        self,
        creation: Creation,
        draft: DraftRoot,
        upload: Upload | None,
        undo: contextlib.ExitStack,
    ) -> RootView | None:
        """Make the repository beside its place, and give it that; None where something is there by now."""
        undo.callback(creation.undo)
        creation.choose()
        publication = [] if upload is None else upload.publication(creation.home)
        if upload is not None and upload.quarantined:  # Its folder goes before others see the repository.
            self._above.perform(publication)
            publication = []
            upload.vacate()
        root, files = draft.finish()
        kept = undo.pop_all()  # From here on only what surely changed nothing may delete the pack.
        try:
            made = creation.finish(root, files, publication)
        except (TransportError, LimitExceeded, InvalidPath):
            kept.close()
            raise
        if not made:
            undo.push(kept)
            return None
        return RootView(root, self.folder)

    def _swap(
        self,
        swap: Swap,
        state: State,
        draft: DraftRoot,
        upload: Upload | None,
        undo: contextlib.ExitStack,
    ) -> RootView:
        root, files = draft.finish()
        intent = draft.intent()
        noted = upload is not None and upload.intent is not None and upload.intent.is_same_change(intent)
        changes = intent.entry is not None and intent.entry.changes
        # No older root can be put back over a first one.
        if changes and not noted and not root.deleted and root.version > 1:
            files.append((intent_path(root.version, self.randomness(8)), encode_intent(intent)))
        swap.settle(root, files, undo, upload.leave if upload is not None else lambda: None)
        return RootView(root, self.folder, state.view)

    def _next(
        self,
        state: State,
        transaction: RepositoryTransaction,
        upload: Upload | None,
        entry: NewLogEntry,
        incarnation: bytes,
    ) -> DraftRoot:
        """The root after a transaction. `incarnation`: of a repository that it makes."""
        now = self.clock()
        if transaction.deleted:
            return tombstone(self._view(state), now=now, log=entry, randomness=self.randomness)
        if transaction.created is not None:
            vcs, kinds, made = transaction.created
            settings: Mapping[str, bytes | None] = made
            view = RootView(empty_root(incarnation, vcs, kinds, now=now, over=state.root), self.folder)
            dropped = [file.name for file in state.root.log_files] if state.root is not None else []
        else:
            view, settings, dropped = self._view(state), transaction.setting_changes, []
        packs: tuple[PackEntry, ...] = view.root.packs
        if upload is not None and upload.entry is not None:
            packs = (*packs, upload.entry)
        return next_root(
            view,
            now=now,
            log=entry,
            packs=packs,
            refs=transaction.changes,
            maps=transaction.entries,
            declare=transaction.declared,
            settings=settings,
            dropped=dropped,
            randomness=self.randomness,
        )


def _changes(transaction: RepositoryTransaction, upload: Upload | None) -> bool:
    """Whether there is anything to write."""
    brought = upload is not None and upload.entry is not None
    changed = transaction.created is not None or transaction.changes or any(transaction.entries.values())
    return bool(changed or transaction.setting_changes or transaction.deleted or transaction.remembered or brought)
