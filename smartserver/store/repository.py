"""`PackRepository`: one repository on one file store, for several threads and processes at once.

A read opens a snapshot, a change is a `commit`, and `upkeep` keeps the number of packs low.
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
"""Seconds between two searches for leftovers in `tidy`. A search lists every file, and leftovers are kept for a day."""


class PackRepository:
    """The repository at `path` below `transport`, or a place where one may be created. A method that needs an existing
    repository raises NoSuchRepository."""

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
        """`clock`: seconds since the epoch. `texts`: a cache shared with other repositories. `policy`: the policy for
        faults of new records."""
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
        """True if the repack that holds `_repacking` found packs to join."""
        self._awaited = threading.Event()
        """Set while a call of `repack` waits for the running repack."""
        self._collected: float | None = None

    # -- reading

    def exists(self) -> bool:
        """Tell whether the repository exists. A deleted repository does not exist."""
        return self._states.look().state.exists

    def deleted(self) -> bool:
        """Tell whether the repository is deleted and its log remains."""
        state = self._states.look().state
        return not state.exists and len(state.history) > 0

    def describe_place(self) -> str:
        """Describe for a message what is at the path instead of a repository; empty if the path does not exist, or
        the store failed."""
        with contextlib.suppress(TransportError):
            return self._place.seen().describe()
        return ""

    def has_root(self) -> bool:
        """Tell whether the root folder of the store exists."""
        return self._place.seen().has_root

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the newest state. Each call reads the log; unchanged parts of the last snapshot are
        reused."""
        found = self._states.read().snapshot
        if found is None:
            raise NoSuchRepository(self.path)
        return found

    def verify(
        self, progress: Callable[[int, int], None] = lambda done, total: None, allowance: Allowance | None = None
    ) -> VerifyReport:
        """Read and check all data in the store itself, not in local copies, and report the damage. The arguments are
        those of `store.verify.verify`."""
        folder = without_copies(self.folder)
        line = self.log if folder is self.folder else Log(folder, self.path, self.randomness)
        return verify(line, progress, allowance)

    def distrust(self) -> None:
        """Make the next request open all files again and check their local copies, one of which may be damaged."""
        distrust_copies(self.folder)
        self._states.forget()

    # -- changing

    def look(self) -> Head:
        """Return the newest state, read from the log."""
        return self._states.look()

    @property
    def known(self) -> Head | None:
        """The last known head, which saves round trips to a remote store; None for a local store."""
        return self.log.known if is_remote(self.folder) else None

    def look_around(self, perform: Perform | None = None) -> Head:
        """Return the newest state. For a remote store, the same round trip also reads what a creation of the repository
        must check."""
        return self._states.look(partial(self._place.look, perform or self._above.perform))

    def begin(
        self,
        announced: Sequence[GraphNode] = (),
        look: Head | None = None,
        allowance: Allowance | None = None,
    ) -> Transaction:
        """Begin a transaction on the state in `look`; None means the newest state. `allowance`: the limits of the
        request; None means no limits."""
        stored = self._states.read(look or self.look_around())
        if stored.head is NOWHERE:  # The folder may have been removed since.
            self._place.forget()
        return Transaction(self.path, stored.snapshot, announced, self._place.line, allowance)

    def receive(
        self, transaction: Transaction, graph_first: bool = False, request: bytes = b"", policy: Policy | None = None
    ) -> Upload:
        """Return an `Upload` for the body of a request. `policy`: the policy for faults, in place of the
        repository's."""
        if not transaction.exists:
            raise NoSuchRepository(self.path)
        makes = transaction.snapshot is None or self.log.lacks_folders
        quarantine = partial(self.quarantine, request, partial(self._place.perform, ()) if makes else None)
        return Upload(transaction, quarantine, graph_first=graph_first, policy=policy or self._policy)

    def earlier(self, request: bytes, age: int) -> CommitOutcome | None:
        """Return the outcome of a repeated request; None if the request was not carried out before. `age`: milliseconds
        since the first sending, 0 for the first sending."""
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
        """Carry out a request. If it changes something, the change becomes part of one record. A repeat gets the first
        answer.

        `upload` must be finished, and cannot be used afterwards. `plan` may be called several times, and `approve`
        after each call that succeeds. `progress`: is called with the phase, the part done, and the whole (0 if
        unknown). `allowance`: as in `begin`. `look`: the state that the request read before, if any. `options`: the
        push options.

        Raises:
            OutcomeUnknown: the request may have been carried out. After any other error nothing has changed.
        """
        parts = self.path, self.log, self._group, self._states, self._place, self.clock, self.randomness
        return Commit(*parts, request, age, user, plan, upload, progress, allowance, look, approve, options).run()

    def delete(self, request: bytes, age: int, user: str) -> CommitOutcome:
        """Delete the repository. Its packs are deleted a day later. A repeat of the request has no further effect."""

        def plan(transaction: Transaction) -> bytes:
            transaction.delete()
            return b""

        return self.commit(request, age, user, plan)

    # -- upkeep

    def repack_if_needed(self, pace: Pace = unpaced) -> bool:
        """Join packs if there are many. Return True if packs were joined; False if there are few, or another thread or
        server is joining them."""
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
        """Create the quarantine of a joined pack. This is called only if there are packs to join."""
        self._joins_packs = True
        return self.quarantine(REPACK)

    def repack(self, progress: Callable[[int, int], None] = lambda done, total: None) -> PackReport:
        """Join all present packs that may be joined, however few. `progress`: is called with the number of packs joined
        so far, and the number of packs at the start."""
        self._awaited.set()
        with self._repacking:
            self._awaited.clear()
            self._joins_packs = False
            snapshot = self.snapshot()
            packs = snapshot.state.packs
            before = left = len(packs)
            progress(0, before)
            for done in range(rows(packs)):  # A loop until nothing is left might never end: each push adds a pack.
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
        """Call `pace`, unless a caller of `repack` waits, or so many packs were added meanwhile that the repack would
        fall behind. Packs of other processes count once a request has read them in the log."""
        latest = self._states.latest
        if not self._awaited.is_set() and (latest is None or len(latest.packs) < packs + AHEAD):
            pace()

    def summarise(self, pace: Pace = unpaced) -> None:
        """Write the missing summaries of the packs of the last state. Without summaries a log is only slower."""
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
        """Do optional work on summaries: log an error instead of raising it."""
        try:
            work()
        except NoSuchRepository:
            return
        except CodedError as error:
            log.warning("summaries of %s: %s", self.path or "the repository", error)

    def tidy(self, pace: Pace = unpaced) -> None:
        """Write a checkpoint if due, repack if needed, write summaries and, once an hour, collect garbage files."""
        long_ago = self._collected is None or self.clock() - self._collected >= COLLECT_INTERVAL
        upkeep.tidy_log(self.log, self.clock)
        self.repack_if_needed(pace)
        self.summarise(pace)
        if long_ago:
            self.collect_garbage_files()

    def save_log(self) -> None:
        """Write a checkpoint if one is due and takes little traffic. This is called after a change of a repository in a
        remote store."""
        upkeep.tidy_log(self.log, self.clock, upkeep.MOST_OVER_LINK)

    def clean_up(self) -> None:
        """Write a checkpoint if due, and delete leftovers. In a remote store, only a call of this method deletes
        leftovers."""
        upkeep.tidy_log(self.log, self.clock)
        self.collect_garbage_files()

    def collect_garbage_files(self, kept: float = upkeep.KEPT) -> int:
        """Delete leftovers of dead writers, and files that were dropped at least `kept` seconds ago. Return the number
        of deleted files."""
        self._collected = self.clock()
        try:
            return upkeep.collect(self.log, self.clock, kept)
        except NoSuchRepository:  # Its folder was removed meanwhile.
            return 0

    # -- steps

    def quarantine(self, request: bytes, prepare: Callable[[], None] | None = None) -> Quarantine:
        """Create a quarantine for one pack. The arguments are those of `Quarantine`."""
        return Quarantine(self.folder, request, self.randomness, prepare)
