"""`Log`: the log of one repository on a store, read and changed. The reasons are in doc/design/0032-one-log.md."""

# Theory of operation
# ===================
#
# A repository is a folder `log` of numbered files. Record N has the effect of change N, and the hash of record N - 1.
# The newest record *is* the repository. A store offers the one primitive that this needs: to create a file that must
# not exist (`Publish`). Of any number of servers that publish record N, one succeeds. There are no locks.
#
# A `Log` is the view of one process on that folder. It keeps a `Head`: the state after the newest record that it saw.
#
# The parts (1 and 2 in `log_view`):
#
# 1) `look` brings the head up to date. `_walk` reads record after record until one is missing, and then looks back.
# 2) `_open` starts from a checkpoint. `look` calls it without a head, or after a look back that failed.
# 3) `append` publishes a record. It asks `judge` for the content, once for each state that turns out to be the
#    newest.
# 4) `_settled` and `_is_in` find out whether a record was published when the store did not say.
#
# Rules:
#
# 1) A number that is missing means "not made yet" only if the record that the head follows is still there. Old
#    records are deleted from the lowest up, so if that one is there, nothing above it was deleted. Hence the look
#    back. A server that was stopped for a day would otherwise see a free number in a log that was cleaned long ago.
# 2) In one batch, steps are ordered from the newest down, so each record that is found was read after the one that
#    was missing. The look back costs no extra round trip.
# 3) A damaged record, or one that does not follow, is never skipped. The head then carries the damage: reads go on
#    from the state before it, `append` refuses.
# 4) A sync that failed is never repeated, because an operating system may report success without having written.
# 5) Before a request is answered from a record that another process published, `make_durable` syncs the folder.
#
# The hard case is a publication whose outcome is unclear: the connection to the store broke, or a gateway answered
# twice. Then one of four things is at the number, and `_settled` finds out which:
#
#      our record                 it is made; `_is_in` also checks that it follows the right record
#      another record             `judge` is asked again, on the new state
#      nothing                    the *same bytes* are published at the *same number* again, at most `TRIES` times.
#                                 If the first attempt lands later, it finds the number taken by itself.
#      it cannot be read          the outcome is unknown, and nothing may be deleted
#
# To publish other bytes, or at another number, after an unclear attempt would allow both to land.
#
# A weak point: a store behind a link wants few round trips, so `_walk` and `_open` guess how many records there are
# and ask for them with the first listing. For this reason both take a `perform` and steps to send along.

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from smartserver.errors import CorruptFile, OutcomeUnknown
from smartserver.store.checkpoint import Since
from smartserver.store.format import INCOMING, LOG
from smartserver.store.log_view import TRIES, Head, LogView, is_still_there
from smartserver.store.record import hash_of, record_path
from smartserver.store.state import State
from transports.base import Step, Transport
from transports.errors import CodedError, FileExists, NoSuchFile, TransportError, TransportFailed
from transports.steps import GetPublished, GetStat, Publish, Put, SyncDirectory

WAIT = 30.0
"""Seconds after which `append` gives up if other processes always publish a record first."""

REMEMBERED = 60.0
"""Seconds for which a process that lost a race assumes that other processes are still writing."""
LONGEST = 1.0
"""The most seconds of a wait. They are limited because judging one large change again takes longer than most
changes."""

Judge = Callable[[State], tuple[bytes, State] | None]
"""A function that returns the next record after a state, and the state after this record. It returns None if nothing
must be changed."""


class Log(LogView):
    """The log of the repository in `folder`. Several threads may use it at once."""

    def __init__(
        self,
        folder: Transport,
        path: str,
        randomness: Callable[[int], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`path`: the path of the repository, for errors. `clock`: a monotonic clock in seconds."""
        super().__init__(folder, path)
        self.randomness = randomness
        self._clock = clock
        self._drafts: dict[bytes, str] = {}
        """The path of the temporary file of each draft that is not published yet, by the record's content."""
        self._synced = b""
        """The hash of the newest record that is known to survive a loss of power."""
        self.turns = Turns(clock)

    def make_durable(self, head: Head) -> None:
        """Make sure that the head survives a loss of power, because another process may have written it without a
        sync."""
        state = head.state
        if state.hash == self._synced:
            return
        there = GetPublished(record_path(state.version))
        try:
            self.folder.perform([SyncDirectory(LOG), there])
        except TransportError as error:  # A sync that failed is never repeated.
            self.forget()
            raise OutcomeUnknown(str(error)) from error
        if not is_still_there(there, state.hash):
            self.forget()
            raise OutcomeUnknown(f"{there.path} is missing")
        self._synced = state.hash

    def append(self, head: Head, judge: Judge) -> Head:
        """Publish a record, and return the new head, which survives a loss of power. `judge` is called again whenever
        another state turns out to be the newest.

        Raises:
            CorruptFile: a record above the head is damaged or does not follow it; nothing is changed.
            OutcomeUnknown: the record may have been published, or may still be.
            TransportError: the store failed, or other processes were first for `WAIT` seconds; nothing is changed.
        """
        deadline, lost = self._clock() + WAIT, None
        while True:
            if head.damage is not None:
                why = f"{head.damage.why}; no change is made before `smartserver recover`"
                raise CorruptFile(head.damage.path, head.damage.offset, why)
            base, verdict = head.state, judge(head.state)
            if verdict is None:
                self.make_durable(head)
                return head
            if lost is not None and self._clock() > deadline:
                raise TransportFailed(LOG, f"other processes changed the repository for {WAIT:.0f} s: try again")
            (content, after), why = verdict, f"another may have been first with change {base.version + 1}"
            if lost is not None:
                self.turns.retried(self._clock() - lost)
            try:
                if self._publish(base, content):
                    self.turns.published()
                    return self._adopted(content, after)
            except _Unclear as error:
                why = str(error)
            lost = self._clock()
            head = self._settled(base, content, after, why)
            if head.state.incarnation == after.incarnation and self._is_in(base, content, head):
                self.make_durable(head)
                return head
            if head.state.history.horizon.version > base.version:
                raise OutcomeUnknown(f"the log no longer has the changes since change {base.version}")

    def append_naming(
        self, moves: Sequence[Step], paths: Sequence[str], judge: Judge, undo: contextlib.ExitStack
    ) -> tuple[Head, contextlib.ExitStack]:
        """Append a record that names files, which `moves` rename to `paths`. After a state was read, the files are
        looked for; if one is missing, no record is published. `undo` is the clean-up if the files cannot be moved.
        Once they are moved, it does not run but is returned, because the record may name the files."""
        looks = [GetStat(path) for path in paths]
        head, is_looked_at = self.look_between(self.known, moves, looks)

        def judged(state: State) -> tuple[bytes, State] | None:
            nonlocal is_looked_at
            verdict, files = judge(state), looks
            if verdict is not None and not is_looked_at:
                files = [GetStat(path) for path in paths]
                self.folder.perform(files)
            is_looked_at = False  # On another state the files are looked at again.
            return None if any(file.result is None for file in files) else verdict

        kept = undo.pop_all()
        return self.append(head, judged), kept

    def draft(self, content: bytes) -> Put:
        """Return the step that writes a record to a temporary file in advance. This saves a round trip when the record
        is published."""
        path = self._drafts[content] = self._temporary()
        return Put(path, content)

    def discard_draft(self, content: bytes) -> None:
        """Delete a draft that was not published."""
        path = self._drafts.pop(content, None)
        if path is not None:
            self._discard(path)

    def _temporary(self) -> str:
        return f"{INCOMING}/{self.randomness(8).hex()}.record"

    def _publish(self, base: State, content: bytes) -> bool:
        """Publish a record that follows a state, durably. Return False if another record has its number, or the record
        that it follows was deleted.

        Raises:
            _Unclear: the record may have been published, or may still be.
            OutcomeUnknown: the record was published, but may not be durable.
            TransportError: the record was not published.
        """
        path = record_path(base.version + 1)
        drafted = self._drafts.pop(content, None)
        temporary = drafted or self._temporary()
        own, below = GetPublished(path), GetPublished(record_path(base.version))
        puts = [Put(temporary, content)] if drafted is None else []
        steps: list[Step] = [*puts, Publish(temporary, path), own, SyncDirectory(LOG), below]
        try:
            self.folder.perform(steps)
        except FileExists:
            self._discard(temporary)
            return False
        except NoSuchFile as error:  # Upkeep deleted the temporary file while this process was stopped.
            raise _Unclear(str(error)) from error
        except TransportError as error:
            self._discard(temporary)
            self.forget()
            if own.was_performed and own.result is not None:
                # The record was published: the sync failed, which is never repeated, or a step after it.
                raise OutcomeUnknown(str(error)) from error
            # A refusal of the store is final, but may concern the step that reads the published record.
            if isinstance(error, TransportFailed) or self._look_again(str(error)).state.hash != base.hash:
                raise _Unclear(str(error)) from error
            raise
        if not is_still_there(below, base.hash):
            self.forget()
            return False
        self._synced = hash_of(content)
        return True

    def _settled(self, base: State, content: bytes, after: State, why: str) -> Head:
        """Return the head after an unclear publication. While the record's base is still the newest state, publish the
        same bytes again, at most `TRIES` times: two records cannot have one number."""
        for _ in range(TRIES):
            head = self._look_again(why)
            if head.state.hash != base.hash:
                return head
            try:
                if self._publish(base, content):
                    return self._adopted(content, after)
            except _Unclear as error:
                why = str(error)
            except CodedError as error:
                raise OutcomeUnknown(f"{why}; then: {error}") from error
        raise OutcomeUnknown(why)

    def _is_in(self, base: State, content: bytes, head: Head) -> bool:
        """Tell whether the log has `content` as the record after `base`, so that the head includes it. If this returns
        False, the entries of the head may still show that it was published."""
        own, record_hash = GetPublished(record_path(base.version + 1)), hash_of(content)
        if head.state.hash == record_hash:
            return True
        below = GetPublished(record_path(base.version))
        try:
            self.folder.perform([own, below])
        except TransportError as error:
            self.forget()
            raise OutcomeUnknown(str(error)) from error
        return is_still_there(own, record_hash) and is_still_there(below, base.hash)

    def _look_again(self, why: str) -> Head:
        """Return the newest head after an unclear publication. Any error means that the outcome is unknown."""
        try:
            head = self.look(has_successor=True)
        except CodedError as error:
            raise OutcomeUnknown(f"{why}; then: {error}") from error
        if head.damage is not None:
            raise OutcomeUnknown(f"{why}; then: {head.damage}")
        return head

    def _discard(self, temporary: str) -> None:
        """Delete an unpublished temporary file, ignoring errors: upkeep deletes leftovers."""
        with contextlib.suppress(TransportError):
            self.folder.delete(temporary)

    def _adopted(self, content: bytes, state: State) -> Head:
        """Return the head after a record that this process published, and keep it as the newest known one."""
        head = Head(state)
        with self._guard:
            if self._head is None or self._head.state.version < state.version:
                self._head = head
                self._count(content)
        return head

    def checkpointed(self, size: int) -> None:
        """Note that a checkpoint of `size` bytes was created."""
        with self._guard:
            self.since = Since(newest=self.since.newest, checkpoint=size)


class _Unclear(Exception):
    """The outcome of a publication is unclear: the record may have been published, or may still be."""


class Turns:
    """The turns of one process at the log of one repository; `wait` is called by one thread at a time.

    Processes race to publish the next record. The last winner would mostly win again, because it knows the state, which
    the other processes have to read first. On a slow store, a process could lose for as long as another has changes to
    make. So a process that lost a race in the last minute waits after each of its records. It waits as long as it
    needed itself to read the new state and try again. This is best effort: nothing depends on it.
    """

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> None:
        """`clock`: a monotonic clock in seconds."""
        self._clock = clock
        self._sleep = sleep
        self._retried_at: float | None = None
        self._needed = 0.0
        self._published_at = 0.0

    def retried(self, seconds: float) -> None:
        """Note that a record is about to be published again, `seconds` after another process published first."""
        self._retried_at, self._needed = self._clock(), min(seconds, LONGEST)

    def published(self) -> None:
        """Note that a record of this process was published."""
        self._published_at = self._clock()

    def wait(self) -> bool:
        """Wait until it is this process's turn again. Return True if the process waited, so that its head may be
        stale."""
        now = self._clock()
        left = self._published_at + self._needed - now
        if self._retried_at is None or now - self._retried_at > REMEMBERED or left <= 0:
            return False
        self._sleep(left)
        return True
