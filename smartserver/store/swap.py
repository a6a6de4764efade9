"""How the root is read and replaced: the only module that writes `format`, `root` and `lock`.

Write order: the files a new root names, synced, their folders synced; then, all under the lock, the new root under a
temporary name, synced, renamed to `root`, the folder synced. A crash anywhere leaves the old root or the new one (of a
creation: none, a tombstone or the new one). What fails before the rename changed nothing; what fails at or after it is
`OutcomeUnknown`, and no sync is tried twice.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from smartserver.errors import LimitExceeded, NoSuchRepository, OutcomeUnknown, Unsupported
from smartserver.records.model import Kind
from smartserver.store.document import Root, check_writable, decode_root, empty_root, encode_root
from smartserver.store.format import FORMAT, LOCK, ROOT, SPOKEN, TEMPORARY, Discipline, Format, parse_format
from transports.base import Transport
from transports.errors import Locked, NoSuchFile, NotADirectory, PermissionDenied, TransportError

LOCK_WAIT = 30.0
"""Seconds a writer waits for the lock. A swap holds it for some 10 ms, on a failing disk for a second, and each thread
of this process that may commit can be in line; who holds it longer than all of them need is stopped, or hangs."""


class RootMoved(Exception):
    """The root is no longer the one the new one was made from: plan again."""


class RootFile:
    """The root of the repository at `path` below `transport`; usable from several threads at once."""

    def __init__(
        self, transport: Transport, path: str = "", *, randomness: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.path = path
        self.folder = transport.child(path) if path else transport
        self.above = transport
        """What `path` counts from."""
        self.randomness = randomness
        self._format: Format | None = None
        self._turn = threading.Lock()
        """Had before the lock: a thread of this process is told at once that another has let go."""
        self._stuck_until = 0.0
        """Until then nobody waits for the lock again: somebody did, in vain."""

    def read(self) -> Root:
        """The root as it is now; a tombstone is one with `deleted` set.

        Raises:
            NoSuchRepository: there is none; `recognise` may say what is there instead.
            CorruptFile: it is damaged.
            Unsupported: its format or a feature is not one this release reads.
            TransportError: the store failed; it says nothing about whether there is one.
        """
        root = self._find()
        if root is None:
            raise NoSuchRepository(self.path)
        return root

    def format(self) -> Format | None:
        """What the format file says; None where there is none.

        Raises:
            CorruptFile, Unsupported: it cannot be read.
        """
        return self._read_format()

    def begin(self, vcs: str, kinds: Sequence[Kind]) -> None:
        """Put a format and an empty tombstone where there is no root: for a creation that holds the lock.

        Raises:
            CorruptFile, Unsupported: a root is there that cannot be read.
            TransportError: the store failed; there is no repository, as before.
        """
        if self._find() is not None:
            self.folder.sync_directory("")  # Whoever put it there may have died before he did.
            return
        if self._read_format() is None:
            found = Format(Discipline.FILE)
            self._put(FORMAT, found.line())
            self._format = found
        empty = empty_root(self.randomness(16), vcs, kinds, now=0)
        self._put(ROOT, encode_root(msgspec.structs.replace(empty, version=1, deleted=True)))

    @contextlib.contextmanager
    def swapping(self) -> Iterator[Swap]:
        """Hold the repository's lock, with the root read again under it; no waiting for a client in here.

        Raises:
            NoSuchRepository: there is none.
            CorruptFile: the root is damaged.
            Unsupported: its format or a feature is not one this release writes.
            Locked: another writer holds the lock and does not let go of it; nothing changed.
        """
        if self._read_format() is None:
            raise NoSuchRepository(self.path)
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self.locked())
            except (NoSuchFile, NotADirectory):
                raise NoSuchRepository(self.path) from None
            root = self.read()
            check_writable(root)
            yield Swap(self, root)

    def sweep(self, *, half_made: bool = False) -> list[str]:
        """Delete temporary files that crashed writers left in the repository's folder; their names. `half_made`: it is
        the folder of a repository that was never finished.

        Raises:
            NoSuchRepository: there is none.
        """
        with self.locked() if half_made else self.swapping():
            left = [name for name in self.folder.list_directory("") if name.startswith(TEMPORARY)]
            for name in left:
                self.folder.delete(name)
        return left

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the repository's lock.

        Raises:
            Locked: for `LOCK_WAIT` it could not be had.
            NoSuchFile, NotADirectory: there is no folder.
        """
        start = time.monotonic()
        if not self._turn.acquire(timeout=LOCK_WAIT):
            raise Locked(f"{self.path}/{LOCK}".lstrip("/"), int(LOCK_WAIT))
        with contextlib.ExitStack() as held:
            held.callback(self._turn.release)
            now = time.monotonic()
            wait = 0.0 if now < self._stuck_until else max(0.0, start + LOCK_WAIT - now)
            try:
                held.enter_context(self.folder.lock(LOCK, wait))
            except Locked as wrong:
                if wait:
                    self._stuck_until = time.monotonic() + LOCK_WAIT
                raise Locked(wrong.path, int(LOCK_WAIT)) from None
            self._stuck_until = 0.0
            yield

    def _find(self) -> Root | None:
        if self._read_format() is None:
            return None
        try:
            content = self.folder.get(ROOT)
        except (NoSuchFile, NotADirectory):
            self._format = None
            return None
        return decode_root(content)

    def _read_format(self) -> Format | None:
        """The format, read once, obeyed here: None where there is no such file."""
        if self._format is None:
            try:
                found = parse_format(self.folder.get(FORMAT))
            except (NoSuchFile, NotADirectory):
                return None
            if found.discipline is not Discipline.FILE:
                raise Unsupported(f"a repository with swap={found.discipline.value}", SPOKEN)
            self._format = found
        return self._format

    def _put(self, name: str, content: bytes) -> None:
        """Make a whole file appear, durably, in place of what was there: for a holder of the lock."""
        with contextlib.ExitStack() as undo:
            temporary = f"{name}.{self.randomness(8).hex()}"
            write_new(self.folder, temporary, content, undo)
            self.folder.rename(temporary, name)
            undo.pop_all()
        self.folder.sync_directory("")


class Swap:
    """The right to replace the root, while the lock is held."""

    def __init__(self, file: RootFile, current: Root) -> None:
        self.current = current
        """The root as read under the lock; a tombstone is one with `deleted` set."""
        self._file = file

    def replace(self, root: Root, files: Sequence[tuple[str, bytes]] = ()) -> None:
        """Make `files` durable, then `root` the repository's root.

        Raises:
            RootMoved: `root` was not made from the root that is there.
            LimitExceeded: it takes more than 64 KiB.
            OutcomeUnknown: the rename or what follows failed; the root is the old one or the new one.
            TransportError: nothing changed.
        """
        old = self.current
        if (old.incarnation, old.version + 1) != (root.incarnation, root.version) and not (
            old.deleted and old.incarnation != root.incarnation and root.version == 1
        ):
            new, there = (f"version {each.version} of {each.incarnation.hex()}" for each in (root, old))
            raise RootMoved(f"{new} cannot follow {there}")
        content = encode_root(root)
        folder = self._file.folder
        with contextlib.ExitStack() as undo:
            for path, file_content in files:
                write_new(folder, path, file_content, undo)
            for name in sorted({path.rpartition("/")[0] for path, _ in files}):
                folder.sync_directory(name)
            temporary = f"{ROOT}.{self._file.randomness(8).hex()}"
            write_new(folder, temporary, content, undo)
            # From here on nothing may be deleted, whatever interrupts: the root may name it.
            written = undo.pop_all()
        try:
            folder.rename(temporary, ROOT)
        except (NoSuchFile, PermissionDenied):
            written.close()
            raise
        except TransportError as wrong:
            raise OutcomeUnknown(f"putting the new root in place failed: {wrong}") from wrong
        self.current = root
        try:
            folder.sync_directory("")
        except TransportError as wrong:
            raise OutcomeUnknown(f"the new root may not survive a loss of power: {wrong}") from wrong

    def settle(
        self,
        root: Root,
        files: Sequence[tuple[str, bytes]],
        undo: contextlib.ExitStack,
        leave: Callable[[], None],
    ) -> None:
        """As `replace`, where `root` names a new pack: `undo`, which deletes it, is done only where surely nothing
        changed, and else `leave`, which lets go of it.

        Raises:
            RootMoved, LimitExceeded, OutcomeUnknown, TransportError: as `replace`.
        """
        kept = undo.pop_all()
        try:
            self.replace(root, files)
        except (TransportError, RootMoved, LimitExceeded):
            kept.close()
            raise
        except BaseException:
            leave()
            raise


def write_new(folder: Transport, path: str, content: bytes, undo: contextlib.ExitStack) -> None:
    """Write a new file and make its content durable; `undo` deletes it, as far as that works.

    Raises:
        FileExists: the name is taken, and stays as it is.
        TransportError: the store failed.
    """
    file = folder.create(path)
    undo.callback(_discard, folder, path)
    with contextlib.closing(file):
        file.write(content)
        file.sync()


def _discard(folder: Transport, path: str) -> None:
    with contextlib.suppress(TransportError):
        folder.delete(path)
