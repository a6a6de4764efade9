"""The discipline `folder`: the lock is a folder (`lock_folder`), for a store that has only files and may be far.

Behind a link a trip is what costs: a small pack is held in memory and put among the others in the trip that takes the
lock, and the new root is written, named and synced in one. What a dead writer left in quarantine is told by its age
alone, because nobody can lock it. On a store of this machine nothing is held in memory.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from smartserver.errors import OutcomeUnknown
from smartserver.store import far
from smartserver.store.format import INCOMING, ROOT
from smartserver.store.lock_folder import HELD, HeldLock, Holder, LockFolder
from smartserver.store.publish.base import Publisher, discard
from smartserver.store.quarantine import Quarantine, remove
from transports import steps
from transports.base import BytesFile, ReadFile, Step, Transport, WriteFile
from transports.errors import NoSuchFile, TransportError, TransportFailed
from transports.steps import Put, Rename, SyncDirectory

Kept = TypeVar("Kept")


class LockBroken(TransportFailed):
    """Somebody broke the lock of a `folder` repository while its holder was at it: nothing changed."""


class FolderPublisher(Publisher):
    """Publishes under a lock folder."""

    def __init__(self, above: Transport, path: str, randomness: Callable[[int], bytes]) -> None:
        super().__init__(above, path, randomness)
        self._lock = LockFolder(above, path, randomness)
        self._far = far.is_far(above)

    def hold(
        self, wait: Callable[[], float], first: Sequence[Step] = (), needed: Sequence[str] = ()
    ) -> AbstractContextManager[HeldLock]:
        # With steps to do first, which can take long, it neither waits nor holds up another thread until they are done.
        return self._lock.hold(wait if first else wait(), first, needed)

    def do_before_lock(self, steps: Sequence[Step]) -> Sequence[Step]:
        return steps

    def sync_with_read(self) -> Sequence[Step]:
        return [SyncDirectory("")] if self._far else ()

    def reusable_state(self, state: Kept) -> Kept | None:
        return state if self._far else None

    def quarantine(self, request: bytes, prepare: Callable[[], str] | None = None) -> Quarantine:
        return DatedQuarantine(self.above, self.path, request, self.randomness, prepare)

    def replace(self, steps: Sequence[Step], temporary: str, is_current: Callable[[], bool]) -> None:
        """A refusal before the rename changed nothing; nor did one at the rename or later, if the old root is still
        there. After any other failure nobody knows which root there is."""
        try:
            self.folder.perform([*steps, Rename(temporary, ROOT), SyncDirectory("")])
        except TransportFailed as wrong:
            raise OutcomeUnknown(f"putting the new root in place failed: {wrong}") from wrong
        except TransportError as wrong:
            refused = str(getattr(wrong, "path", ""))
            before = [f"{self.path}/{step.path}".lstrip("/") for step in steps]
            named = any(refused == path or refused.endswith(f"/{path}") for path in before)
            if not named and not is_current():
                raise OutcomeUnknown(f"putting the new root in place failed: {wrong}") from wrong
            for step in steps:
                if isinstance(step, Put):
                    discard(self.folder, step.path)
            if isinstance(wrong, NoSuchFile) and f"{HELD}/" in refused:
                raise LockBroken(refused, "the lock was broken while it was held; nothing was changed") from wrong
            raise

    def sweep(self, incoming: Sequence[str], locks: Sequence[str], old: Callable[[float], bool]) -> int:
        return _sweep_old(self.folder, [f"{INCOMING}/{name}" for name in incoming], old) + self._lock.sweep(locks, old)

    def is_at_work(self, request: bytes) -> bool:
        return False

    def holder(self) -> Holder | None:
        return self._lock.holder()

    def break_lock(self, holder: Holder) -> None:
        self._lock.break_lock(holder)


class DatedQuarantine(Quarantine):
    """A quarantine that only its age tells from a dead writer's. Behind a link a small pack has no folder."""

    _pack: HeldFile | None = None
    _index = b""

    def create(self) -> WriteFile:
        self._pack = HeldFile(self)
        return self._pack

    def write_index(self, index: Iterator[bytes]) -> None:
        if self.path:
            super().write_index(index)
        elif self._pack is not None:
            self._index = b"".join(index)
            self._pack.most = sys.maxsize  # The intent that follows goes where the index is.

    def open_pack(self) -> ReadFile:
        assert self._pack is not None  # It was made before it is read.
        return _HeldReader(self._pack)

    def open_index(self) -> ReadFile:
        return self.above.open_read(self.index_path) if self.path else BytesFile(self._index)

    def moves(self, pack: str, index: str) -> list[Step]:
        if self._pack is None or self.path:
            return super().moves(pack, index)
        return [Put(self.pack_path, bytes(self._pack.content)), Put(self.index_path, self._index)]

    def time(self) -> float:
        made = steps.GetStat(self.choose())
        self.above.perform([steps.MakeDirectory(made.path), made, steps.RemoveDirectory(made.path)])
        if made.result is None:
            raise NoSuchFile(made.path)
        return made.result.modified


class HeldFile(WriteFile):
    """The pack of a quarantine: in memory until it is too large for that, then a file. It may be read meanwhile."""

    def __init__(self, quarantine: Quarantine) -> None:
        self.content = bytearray()
        """All of it, while it is in memory."""
        # A strong reference would form a cycle and keep the content in memory until the next garbage collection.
        self._quarantine: Quarantine = weakref.proxy(quarantine)
        self._above = quarantine.above
        self.most = far.AT_ONCE if far.is_far(self._above) else 0
        """Bytes that are held in memory at most."""
        self._file: WriteFile | None = None
        self._reader: ReadFile | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.content += data
        if self._file is None and len(self.content) <= self.most:
            return
        if self._file is None:
            self._quarantine.enter()
            self._file = self._above.create(self._quarantine.pack_path)
        content, self.content = self.content, bytearray()
        self._file.write(bytes(content))

    def sync(self) -> None:
        """In memory it is durable once it is published."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        for each in (self._file, self._reader):
            if each is not None:
                each.close()
        self._reader = None

    def read_at(self, offset: int, size: int) -> bytes:
        """As of a `ReadFile`, whatever was written so far."""
        if self._file is None:
            return bytes(self.content[offset : offset + size])
        return self._opened().read_at(offset, size)

    def size(self) -> int:
        """Bytes so far."""
        return len(self.content) if self._file is None else self._opened().size()

    def _opened(self) -> ReadFile:
        if self._reader is None:
            self._reader = self._above.open_read(self._quarantine.pack_path)
        return self._reader


class _HeldReader(ReadFile):
    """Reads a held file; to close it closes nothing."""

    def __init__(self, held: HeldFile) -> None:
        self._held = held

    def read_at(self, offset: int, size: int) -> bytes:
        return self._held.read_at(offset, size)

    def size(self) -> int:
        return self._held.size()

    def close(self) -> None:
        """It is read until it is deleted."""


def _sweep_old(folder: Transport, places: Sequence[str], old: Callable[[float], bool]) -> int:
    """Remove the folders in which nothing was done for long; how many. They are looked at together, or one by one where
    one of them may not be looked at, which stays."""
    try:
        return _sweep_together(folder, places, old)
    except TransportError:
        return sum(_sweep_old(folder, [place], old) for place in places) if len(places) > 1 else 0


def _sweep_together(folder: Transport, places: Sequence[str], old: Callable[[float], bool]) -> int:

    def is_old(look: steps.GetStat) -> bool:
        return look.result is not None and old(look.result.modified)

    looks = [steps.GetStat(place) for place in places]
    folder.perform(looks)
    listed = [steps.ListDirectory(each.path) for each in looks if is_old(each)]
    folder.perform(listed)
    inside = [[steps.GetStat(f"{each.path}/{name}") for name in each.result or ()] for each in listed]
    folder.perform([each for row in inside for each in row])
    swept = 0
    for each, row in zip(listed, inside, strict=True):
        with contextlib.suppress(TransportError):
            if all(map(is_old, row)):
                remove(folder, each.path, each.result or ())
                swept += 1
    return swept
