"""`PackRepository`: one repository on one file store, for several threads and processes at once.

What reads opens a snapshot, what changes is a commit (`commit`), and `upkeep` keeps the packs few.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from smartserver.errors import NoSuchRepository
from smartserver.records.faults import SAFE, Policy
from smartserver.records.model import GraphNode
from smartserver.store import upkeep
from smartserver.store.allowance import Allowance
from smartserver.store.caches import TextCache
from smartserver.store.commit import Approve, Commit, CommitOutcome, Group, Plan, approve_all, earlier
from smartserver.store.creation import Creation
from smartserver.store.index_build import Pace, unpaced
from smartserver.store.log import Log
from smartserver.store.log_view import NOWHERE, Head, Perform
from smartserver.store.model import PackReport, VerifyReport
from smartserver.store.quarantine import Quarantine
from smartserver.store.remote import is_remote
from smartserver.store.repack import AHEAD, REPACK, repack, rows
from smartserver.store.snapshot import Snapshot, States
from smartserver.store.summarise import summarise, summarise_joined
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Report, Upload, unreported
from smartserver.store.verify import verify
from transports.base import Transport
from transports.decorators.cached import distrust_copies, without_copies
from transports.errors import CodedError, TransportError

log = logging.getLogger("smartserver")

COLLECT_INTERVAL = 3600.0
"""Seconds between two searches for leftovers in passing: each lists every file, and what it finds is a day old."""


class PackRepository:
    """The repository at `path` below `transport`, or a place for one. Methods that need one raise NoSuchRepository."""

    def __init__(
        self,
        transport: Transport,
        path: str = "",
        *,
        clock: Callable[[], float] = time.time,
        randomness: Callable[[int], bytes] = os.urandom,
        texts: TextCache | None = None,
        policy: Policy = SAFE,
    ) -> None:
        """`clock`: seconds since the epoch; `texts`: a cache to share. `policy`: about faults of new records."""
        self.path = path
        self.folder = transport.child(path) if path else transport
        self._above = transport
        self._place = Creation(transport, path, randomness, clock)
        self.log = Log(self.folder, path, randomness)
        self.clock = clock
        self.randomness = randomness
        self._group = Group(self.log, clock)
        self._states = States(self.log, texts if texts is not None else TextCache())
        self._policy = policy
        self._repacking = threading.Lock()
        self._joins_packs = False
        """True if the repack that holds the lock found packs to join."""
        self._awaited = threading.Event()
        """Somebody waits for the repack that is being made."""
        self._collected: float | None = None

    # -- reading

    def exists(self) -> bool:
        """Tell whether there is a repository; a deleted one is none."""
        return self._states.look().state.exists

    def deleted(self) -> bool:
        """Tell whether there was a repository, and its log still is."""
        state = self._states.look().state
        return not state.exists and len(state.history) > 0

    def describe_place(self) -> str:
        """A description of a place without a repository, for a message; empty if nothing is there, or unknown."""
        with contextlib.suppress(TransportError):
            return self._place.seen().describe()
        return ""

    def has_root(self) -> bool:
        """Tell whether the folder below which all paths lie is there."""
        return self._place.seen().has_root

    def snapshot(self) -> Snapshot:
        """The repository as it is now; the log is looked at each time, what did not change is taken over."""
        found = self._states.read().snapshot
        if found is None:
            raise NoSuchRepository(self.path)
        return found

    def verify(
        self, progress: Callable[[int, int], None] = lambda done, total: None, allowance: Allowance | None = None
    ) -> VerifyReport:
        """Read and check everything, not in this machine's copies; damage is reported. Arguments: of `store.verify`."""
        folder = without_copies(self.folder)
        line = self.log if folder is self.folder else Log(folder, self.path, self.randomness)
        return verify(line, progress, allowance)

    def distrust(self) -> None:
        """Open all files again for the next request, and check this machine's copies of them: a copy may be damaged."""
        distrust_copies(self.folder)
        self._states.forget()

    # -- changing

    def look(self) -> Head:
        """The newest state, as a request begins."""
        return self._states.look()

    @property
    def known(self) -> Head | None:
        """The repository as it was last seen, behind a link, where to look takes trips; None elsewhere."""
        return self.log.known if is_remote(self.folder) else None

    def look_around(self, perform: Perform | None = None) -> Head:
        """The newest state; in a remote store a creation looks at the place in the same trip."""
        return self._states.look(partial(self._place.look, perform or self._above.perform))

    def begin(
        self,
        announced: Sequence[GraphNode] = (),
        look: Head | None = None,
        allowance: Allowance | None = None,
    ) -> Transaction:
        """A transaction on the repository as `look` saw it, or as it is now, if it exists. `allowance`: or no limit."""
        stored = self._states.read(look or self.look_around())
        if stored.head is NOWHERE:  # The folder may have been removed since.
            self._place.forget()
        return Transaction(self.path, stored.snapshot, announced, self._place.line, allowance)

    def receive(
        self, transaction: Transaction, graph_first: bool = False, request: bytes = b"", policy: Policy | None = None
    ) -> Upload:
        """A place for the body of a request. `policy`: in place of the repository's."""
        if not transaction.exists:
            raise NoSuchRepository(self.path)
        makes = transaction.snapshot is None or self.log.lacks_folders
        quarantine = partial(self.quarantine, request, self._place if makes else None)
        return Upload(transaction, quarantine, graph_first=graph_first, policy=policy or self._policy)

    def earlier(self, request: bytes, age: int) -> CommitOutcome | None:
        """The outcome of a request that is repeated; `age`: milliseconds since its first sending, 0 for the first."""
        head = self._states.look()
        found = earlier(head, self.clock, request, age)
        if found is not None:
            self.log.make_durable(head)
        return found

    def commit(
        self,
        request: bytes,
        age: int,
        user: str,
        plan: Plan,
        upload: Upload | None = None,
        progress: Report = unreported,
        allowance: Allowance | None = None,
        look: Head | None = None,
        approve: Approve = approve_all,
        options: tuple[str, ...] = (),
    ) -> CommitOutcome:
        """Carry out a request: one record, or none if nothing changes. A repeat gets the first answer.

        `upload` is finished, and given up afterwards whatever happens. `plan` may be called several times, and
        `approve` after each time that it succeeds. `progress`: told the phase, the part done, and the whole (0: not
        known). `allowance`: as of `begin`. `look`: the state that the request saw, if it did. `options`: those of the
        push.

        Raises:
            OutcomeUnknown: it may have been carried out. After any other error nothing has changed.
        """
        parts = self.path, self.log, self._group, self._states, self._place, self.clock, self.randomness
        return Commit(*parts, request, age, user, plan, upload, progress, allowance, look, approve, options).run()

    def delete(self, request: bytes, age: int, user: str) -> CommitOutcome:
        """Delete the repository; its packs go a day later. A repeat deletes nothing more."""

        def plan(transaction: Transaction) -> bytes:
            transaction.delete()
            return b""

        return self.commit(request, age, user, plan)

    # -- upkeep

    def repack_if_needed(self, pace: Pace = unpaced) -> bool:
        """Join packs if there are many; False if that is not needed, or another is at it."""
        if not self._repacking.acquire(blocking=False):
            return False
        self._joins_packs = False
        try:
            snapshot = self._states.read().snapshot
            if snapshot is None:
                return False
            paced = partial(self._unless_pressed, pace, len(snapshot.packs))
            made = repack(self.log, snapshot, self._begin_repack, self.clock, pace=paced)
            if made is not None:
                self._try(partial(summarise_joined, self.folder, snapshot, made, self.randomness, paced))
            return made is not None
        finally:
            self._repacking.release()

    @property
    def is_repacking(self) -> bool:
        """True if packs are being joined."""
        return self._joins_packs and self._repacking.locked()

    def _begin_repack(self) -> Quarantine:
        """Asked for once there are packs to join."""
        self._joins_packs = True
        return self.quarantine(REPACK)

    def repack(self, progress: Callable[[int, int], None] = lambda done, total: None) -> PackReport:
        """Join all packs that are there now and may be, however few. `progress`: packs joined, packs in all."""
        self._awaited.set()
        with self._repacking:
            self._awaited.clear()
            self._joins_packs = False
            snapshot = self.snapshot()
            packs = snapshot.state.packs
            before = left = len(packs)
            progress(0, before)
            for done in range(rows(packs)):  # Not until there is none: each push that comes makes another.
                if done:
                    snapshot = self.snapshot()
                made = repack(self.log, snapshot, self._begin_repack, self.clock, whole=True)
                if made is None:
                    break
                self._try(partial(summarise_joined, self.folder, snapshot, made, self.randomness))
                packs = made.packs
                left = min(left, len(packs))  # A push may have come meanwhile.
                progress(before - left, before)
            if not is_remote(self.folder):
                self._try(self._summarise_whole)
            return PackReport(before, len(packs), sum(entry.length for entry in packs))

    def _unless_pressed(self, pace: Pace, packs: int) -> None:
        """Keep to a pace unless somebody waits for the end, or so many packs came meanwhile that it would fall behind.
        Requests of this process see packs when they look at the log, also those that another process brought."""
        latest = self._states.latest
        if not self._awaited.is_set() and (latest is None or len(latest.packs) < packs + AHEAD):
            pace()

    def summarise(self, pace: Pace = unpaced) -> None:
        """Write the summaries that the packs of the last state lack. Without them logs are only slower."""
        latest = self._states.latest
        if latest is not None and self._repacking.acquire(blocking=False):
            try:
                self._try(partial(summarise, self.folder, latest, self.randomness, pace))
            finally:
                self._repacking.release()

    def _summarise_whole(self) -> None:
        snapshot = self.snapshot()
        for pack in snapshot.packs:
            pack.check_summaries()
        summarise(self.folder, snapshot, self.randomness)

    def _try(self, work: Callable[[], None]) -> None:
        """Do what nothing depends on."""
        try:
            work()
        except NoSuchRepository:
            return
        except CodedError as error:
            log.warning("summaries of %s: %s", self.path or "the repository", error)

    def tidy(self, pace: Pace = unpaced) -> None:
        """Make a checkpoint, repack if needed, write summaries, and, once an hour, collect garbage files."""
        long_ago = self._collected is None or self.clock() - self._collected >= COLLECT_INTERVAL
        upkeep.tidy_log(self.log, self.clock)
        self.repack_if_needed(pace)
        self.summarise(pace)
        if long_ago:
            self.collect_garbage_files()

    def save_log(self) -> None:
        """Make a checkpoint if one is due and little is moved for it, as after a change over a link."""
        upkeep.tidy_log(self.log, self.clock, upkeep.MOST_OVER_LINK)

    def clean_up(self) -> None:
        """Do what nobody does unasked in a store behind a link: make a checkpoint if due, delete what is left."""
        upkeep.tidy_log(self.log, self.clock)
        self.collect_garbage_files()

    def collect_garbage_files(self, kept: float = upkeep.KEPT) -> int:
        """Delete leftovers of dead writers, and files dropped `kept` seconds ago; the number of them."""
        self._collected = self.clock()
        try:
            return upkeep.collect(self.log, self.clock, kept)
        except NoSuchRepository:  # It went away meanwhile.
            return 0

    # -- steps

    def quarantine(self, request: bytes, creation: Creation | None = None) -> Quarantine:
        """A place for a pack; as of `Quarantine`."""
        return Quarantine(self.folder, request, self.randomness, creation)
