"""The discipline `file`: the lock is a lock on the file `lock`, and ends with its holder.

Packs are moved among the others before the lock is taken, so that other writers need not wait for that. A quarantine is
locked too, for as long as its writer lives: a sweep tells what a dead one left at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from smartserver.errors import OutcomeUnknown, Unsupported
from smartserver.spans import Part, span
from smartserver.store.format import INCOMING, ROOT
from smartserver.store.format import LOCK as REPOSITORY_LOCK
from smartserver.store.lock_folder import HeldLock, Holder, HolderCheck
from smartserver.store.publish.base import Publisher, write_new
from smartserver.store.quarantine import Quarantine, remove
from transports import steps
from transports.base import Capability, ReadFile, Step, Transport, WriteFile
from transports.errors import NoSuchFile, NotSupported, PermissionDenied, TransportError

LOCK = "lock"
"""The file in a quarantine that its writer has locked."""

Kept = TypeVar("Kept")


class FilePublisher(Publisher):
    """Publishes under a lock on a file."""

    @contextlib.contextmanager
    def hold(
        self, wait: Callable[[], float], first: Sequence[Step] = (), needed: Sequence[str] = ()
    ) -> Iterator[HeldLock]:
        self._check_locks()
        with self.folder.lock(REPOSITORY_LOCK, wait()):
            look = HolderCheck(self.path, needed)
            self.above.perform([*first, *look.steps])
            yield look.held()

    def do_before_lock(self, steps: Sequence[Step]) -> Sequence[Step]:
        with span(Part.DISK, "move the pack"):
            self.above.perform(steps)
        return ()

    def sync_with_read(self) -> Sequence[Step]:
        return ()

    def reusable_state(self, state: Kept) -> Kept | None:
        return None

    def quarantine(self, request: bytes, prepare: Callable[[], str] | None = None) -> Quarantine:
        self._check_locks()
        return LockedQuarantine(self.above, self.path, request, self.randomness, prepare)

    def replace(self, steps: Sequence[Step], temporary: str, is_current: Callable[[], bool]) -> None:
        written = write_new(self.folder, steps)
        # From here on nothing may be deleted, whatever interrupts: the root may name it.
        try:
            self.folder.rename(temporary, ROOT)
        except (NoSuchFile, PermissionDenied, NotSupported):
            written.close()
            raise
        except TransportError as wrong:
            raise OutcomeUnknown(f"putting the new root in place failed: {wrong}") from wrong
        try:
            self.folder.sync_directory("")
        except TransportError as wrong:
            raise OutcomeUnknown(f"the new root may not survive a loss of power: {wrong}") from wrong

    def sweep(self, incoming: Sequence[str], locks: Sequence[str], old: Callable[[float], bool]) -> int:
        return sum(_sweep_dead(self.folder, f"{INCOMING}/{name}") for name in incoming)

    def is_at_work(self, request: bytes) -> bool:
        with contextlib.suppress(TransportError):
            names = self.folder.list_directory(INCOMING)
            mine = [f"{INCOMING}/{name}" for name in names if name.startswith(f"{request.hex()}-")]
            return any(_lives(self.folder, place) for place in mine)
        return False

    def holder(self) -> Holder | None:
        raise Unsupported("breaking a lock that ends with its holder (swap=file)", "break-lock of swap=folder")

    def break_lock(self, holder: Holder) -> None:
        self.holder()

    def _check_locks(self) -> None:
        if Capability.LOCK not in self.above.capabilities:
            what = "a change by file operations of a repository whose writers lock a file (swap=file)"
            what += ": push to it through a server (hpss://), or pull it into a new repository"
            raise Unsupported(what, "swap=folder there")


class LockedQuarantine(Quarantine):
    """A quarantine whose writer holds a lock in it."""

    def claim(self, place: str) -> bool:
        with contextlib.suppress(NoSuchFile):
            if self._claimed.enter_context(self.above.try_lock(f"{place}/{LOCK}")):
                return True
        self._claimed.close()  # Another looked whether it is a dead one's, between its making and its locking.
        return False

    def create(self) -> WriteFile:
        self.enter()
        return self.above.create(self.pack_path)

    def open_pack(self) -> ReadFile:
        return self.above.open_read(self.pack_path)

    def open_index(self) -> ReadFile:
        return self.above.open_read(self.index_path)

    def time(self) -> float:
        self.enter()
        made = steps.GetStat(self.path)
        try:
            self.above.perform([made])
        finally:
            self.leave()
        if made.result is None:
            raise NoSuchFile(made.path)
        return made.result.modified

    def release(self) -> list[Step]:
        return [steps.Delete(f"{self.path}/{LOCK}")]


def _sweep_dead(folder: Transport, place: str) -> bool:
    """Remove a quarantine unless its writer holds the lock in it; whether that was done."""
    with contextlib.suppress(TransportError), folder.try_lock(f"{place}/{LOCK}") as dead:
        if dead:
            names = folder.list_directory(place)
            # The file that says that it is somebody's is the last.
            remove(folder, place, sorted(names, key=lambda name: name == LOCK))
            return True
    return False


def _lives(folder: Transport, place: str) -> bool:
    with contextlib.suppress(TransportError), folder.try_lock(f"{place}/{LOCK}") as dead:
        return not dead
    return False
