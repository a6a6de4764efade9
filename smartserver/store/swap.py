"""How the root is read and replaced: the only module that writes `format`, `root` and `lock`.

Write order: the files a new root names, synced, their folders synced; then, all under the lock, the new root under a
temporary name, synced, renamed to `root`, the folder synced. A crash anywhere leaves the old root or the new one (of a
creation: none, a tombstone or the new one). What fails before the rename changed nothing; what fails at or after it is
`OutcomeUnknown`, and no sync is tried twice.

The lock is what the repository's format says, whatever the writer's way to it is: a file, or a folder (`lock_folder`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from smartserver.errors import CorruptFile, LimitExceeded, NoSuchRepository, OutcomeUnknown, Unsupported
from smartserver.records.model import Kind
from smartserver.store.document import Root, check_writable, decode_root, empty_root, encode_root
from smartserver.store.far import is_far
from smartserver.store.format import FORMAT, LOCK, ROOT, SPOKEN, TEMPORARY, Discipline, Format, is_marked, parse_format
from smartserver.store.lock_folder import HELD, Held, LockFolder, Look
from transports.base import Capability, Transport
from transports.errors import (
    FileExists,
    Locked,
    NoSuchFile,
    NotADirectory,
    NotSupported,
    PermissionDenied,
    TransportError,
    TransportFailed,
)
from transports.steps import Delete, Get, ListDirectory, Put, Rename, Step, SyncDirectory

LOCK_WAIT = 30.0
"""Seconds a writer waits for the lock. A swap holds it for some 10 ms, on a failing disk for a second, and each thread
of this process that may commit can be in line; who holds it longer than all of them need is stopped, or hangs."""


class RootMoved(Exception):
    """The root is no longer the one the new one was made from: plan again."""


class RootFile:
    """The root of the repository at `path` below `transport`; usable from several threads at once."""

    def __init__(
        self,
        transport: Transport,
        path: str = "",
        *,
        discipline: Discipline | None = None,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`discipline`: of a repository that is made here; None: `file` where the store can lock files."""
        if discipline is None:
            discipline = Discipline.FILE if Capability.LOCK in transport.capabilities else Discipline.FOLDER
        self.new = Format(discipline)
        """The format of a repository that is made here."""
        self.path = path
        self.folder = transport.child(path) if path else transport
        self.above = transport
        """What `path` counts from."""
        self.randomness = randomness
        self.lock_folder = LockFolder(transport, path, randomness)
        """The lock of a `folder` repository."""
        self._format: Format | None = None
        self._turn = threading.Lock()
        """Had before the lock is waited for: a thread of this process is told at once that another has let go."""
        self._stuck_until = 0.0
        """Until then nobody waits for the lock again: somebody did, in vain."""
        self.durable: Root | None = None
        """The last root that is known to survive a loss of power."""
        self._decoded: tuple[bytes, Root] | None = None
        """The content read or written last, and its root: most reads find the same, and to decode it takes 1 ms."""

    def read(self, *, durable: bool = False) -> Root:
        """The root as it is now; a tombstone is one with `deleted` set. `durable`: make it so in the same trip.

        Raises:
            NoSuchRepository: there is none; `recognise` may say what is there instead.
            CorruptFile: it is damaged.
            Unsupported: its format or a feature is not one this release reads.
            TransportError: the store failed; it says nothing about whether there is one.
        """
        root = self._find(durable=durable)
        if root is None:
            raise NoSuchRepository(self.path)
        return root

    def make_durable(self, root: Root) -> None:
        """Sync the folder of a root that was read, unless this process wrote or synced that root before.

        Its writer, another process, may have crashed between its rename and its sync: nothing may be acknowledged from
        such a root, which a loss of power can still take back.

        Raises:
            TransportError: the sync failed.
        """
        if root != self.durable:
            self.folder.sync_directory("")
            self.durable = root

    def format(self) -> Format | None:
        """What the format file says; None where there is none.

        Raises:
            CorruptFile, Unsupported: it cannot be read.
        """
        return self._read_format()

    def begin(self, held: Held, vcs: str, kinds: Sequence[Kind]) -> None:
        """Put a format and an empty tombstone where there is no root, under the lock that is `held`.

        Raises:
            CorruptFile, Unsupported: a root is there that cannot be read.
            TransportError: the store failed; there is no repository, as before.
        """
        if self._find() is not None:
            self.folder.sync_directory("")  # Whoever put it there may have died before he did.
            return
        if self._read_format() is None:
            self._put(held, FORMAT, self.new.line())
            self._format = self.new
        empty = empty_root(self.randomness(16), vcs, kinds, now=0)
        self._put(held, ROOT, encode_root(msgspec.structs.replace(empty, version=1, deleted=True)))

    @contextlib.contextmanager
    def swapping(self, first: Sequence[Step] = (), needed: Sequence[str] = ()) -> Iterator[Swap]:
        """Hold the repository's lock, with the root read again under it; no waiting for a client in here.

        `first`: steps below `above` that are done before, in the same trip where the store can do so. `needed`: files
        below `above` that the new root will name. Nobody moves a stray without the lock, so they are safe once seen.

        Raises:
            TransportFailed: one of `needed` is gone: this writer was stopped for so long that it was swept.
            NoSuchRepository: there is none.
            CorruptFile: the root is damaged.
            Unsupported: its format or a feature is not one this release writes.
            Locked: another writer holds the lock and does not let go of it; nothing changed.
        """
        if self._read_format() is None:
            raise NoSuchRepository(self.path)
        if first and not is_far(self.above):
            self.above.perform(first)  # Others of this process need not wait for that.
            first = ()
        with contextlib.ExitStack() as until:
            try:
                held = until.enter_context(self.locked(first, needed))
            except (NoSuchFile, NotADirectory):
                raise NoSuchRepository(self.path) from None
            root = self._decode(held.root)
            if root is None:
                raise NoSuchRepository(self.path)
            check_writable(root)
            yield Swap(self, held, root)

    def sweep(self, *, half_made: bool = False) -> list[str]:
        """Delete temporary files that crashed writers left in the repository's folder; their names. `half_made`: it is
        the folder of a repository that was never finished.

        Raises:
            NoSuchRepository: there is none.
        """
        with self.locked() if half_made else self.swapping():
            names = ListDirectory("")
            self.folder.perform([names])
            left = [name for name in names.result or () if name.startswith(TEMPORARY)]
            self.folder.perform([Delete(name) for name in left])
        return left

    @contextlib.contextmanager
    def locked(self, first: Sequence[Step] = (), needed: Sequence[str] = ()) -> Iterator[Held]:
        """Hold the repository's lock, with the root's content read under it. `first`, `needed`: as of `swapping`.

        Raises:
            Locked: for `LOCK_WAIT` it could not be had.
            NoSuchFile, NotADirectory: there is no folder.
            Unsupported: it is on a file, and this store cannot lock one.
        """
        wait = 0.0

        def queue() -> float:
            nonlocal wait
            start = time.monotonic()
            if not self._turn.acquire(timeout=LOCK_WAIT):
                raise Locked(f"{self.path}/{LOCK}".lstrip("/"), int(LOCK_WAIT))
            until.callback(self._turn.release)
            now = time.monotonic()
            wait = 0.0 if now < self._stuck_until else max(0.0, start + LOCK_WAIT - now)
            return wait

        with contextlib.ExitStack() as until:
            try:
                held = until.enter_context(self._lock(queue, first, needed))
            except Locked as wrong:
                if wait:
                    self._stuck_until = time.monotonic() + LOCK_WAIT
                raise Locked(wrong.path, int(LOCK_WAIT), wrong.holder) from None
            self._stuck_until = 0.0
            if held.missing is not None:
                raise TransportFailed(held.missing, "moved away while its writer was stopped; try again")
            yield held

    @contextlib.contextmanager
    def try_locked(self) -> Iterator[bool]:
        """Hold the repository's lock if that can be had at once; whether it could.

        Raises:
            NoSuchFile, NotADirectory, TransportError: there is no folder, or the store failed.
        """
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._lock(lambda: 0.0))
                mine = True
            except Locked:
                mine = False
            yield mine

    @property
    def line(self) -> str:
        """What the format file said when it was read, else what it says where a repository is made here."""
        return (self._format or self.new).line().decode().rstrip("\n")

    def in_folder(self) -> bool:
        """Whether the lock is a folder: of the repository that is here, else of one that is made here."""
        return (self._read_format() or self.new).discipline is Discipline.FOLDER

    def check_lock(self) -> bool:
        """Whether the lock is a folder, as `in_folder`.

        Raises:
            Unsupported: it is a file, and this store locks none.
        """
        if self.in_folder():
            return True
        if Capability.LOCK not in self.folder.capabilities:
            what = "a change by file operations of a repository whose writers lock a file (swap=file)"
            what += ": push to it through a server (hpss://), or pull it into a new repository"
            raise Unsupported(what, "swap=folder there")
        return False

    def temporary(self, held: Held, name: str) -> str:
        """A path under which something is written that gets this name then, by the holder of the lock."""
        return f"{held.folder}{name}.{self.randomness(8).hex()}"

    @contextlib.contextmanager
    def _lock(
        self, wait: Callable[[], float], first: Sequence[Step] = (), needed: Sequence[str] = ()
    ) -> Iterator[Held]:
        if self.check_lock():
            # Who has something to bring first, which can take long, waits for nobody and keeps nobody until it is done.
            with self.lock_folder.hold(wait if first else wait(), first, needed) as held:
                yield held
            return
        with self.folder.lock(LOCK, wait()):
            look = Look(self.path, needed)
            self.above.perform(look.steps)
            yield look.held()

    def _find(self, *, durable: bool = False) -> Root | None:
        root = Get(ROOT)
        if self._format is not None:
            self.folder.perform([root, SyncDirectory("")] if durable else [root])
            found = self._decode(root.result)
            self.durable = found if durable else self.durable
            return found
        line = Get(FORMAT)
        try:
            self.folder.perform([line, root])
        except TransportFailed:
            if is_marked(self.folder):
                raise
            return None  # A folder that somebody called `format` or `root`.
        if line.result is None:
            return None
        self._format = self._obeyed(line.result)
        return self._decode(root.result)

    def _decode(self, content: bytes | None) -> Root | None:
        if content is None:
            self._format = None
            return None
        last = self._decoded
        if last is None or last[0] != content:
            last = self._decoded = (content, decode_root(content))
        return last[1]

    def replaced(self, content: bytes, root: Root) -> None:
        """Take note of the root a swap wrote, which is durable."""
        self.durable = root
        self._decoded = (content, root)

    def _read_format(self) -> Format | None:
        """The format, read once, obeyed here: None where there is no such file."""
        if self._format is None:
            line = Get(FORMAT)
            self.folder.perform([line])
            if line.result is None:
                return None
            self._format = self._obeyed(line.result)
        return self._format

    def _obeyed(self, line: bytes) -> Format:
        found = parse_format(line)
        if found.discipline is Discipline.OBJECT:
            raise Unsupported(f"a repository with swap={found.discipline.value}", SPOKEN)
        return found

    def _put(self, held: Held, name: str, content: bytes) -> None:
        """Make a whole file appear, durably, in place of what was there: for a holder of the lock."""
        with contextlib.ExitStack() as undo:
            temporary = self.temporary(held, name)
            write_new(self.folder, [Put(temporary, content)], undo)
            self.folder.rename(temporary, name)
            undo.pop_all()
        self.folder.sync_directory("")


class Swap:
    """The right to replace the root, while the lock is held."""

    def __init__(self, file: RootFile, held: Held, current: Root) -> None:
        self.current = current
        """The root as read under the lock; a tombstone is one with `deleted` set."""
        self._file = file
        self._held = held

    def replace(self, root: Root, files: Sequence[tuple[str, bytes]] = (), *, renewed: bool = False) -> None:
        """Make `files` durable, then `root` the repository's root. `renewed`: it has a new incarnation.

        Raises:
            RootMoved: `root` was not made from the root that is there.
            LimitExceeded: it takes more than 64 KiB.
            OutcomeUnknown: the rename or what follows failed; the root is the old one or the new one.
            TransportError: nothing changed.
        """
        old = self.current
        follows = root.version == old.version + 1 and (root.incarnation == old.incarnation) != renewed
        if not follows and not (old.deleted and old.incarnation != root.incarnation and root.version == 1):
            new, there = (f"version {each.version} of {each.incarnation.hex()}" for each in (root, old))
            raise RootMoved(f"{new} cannot follow {there}")
        folder, temporary = self._file.folder, self._file.temporary(self._held, ROOT)
        puts = [Put(path, content) for path, content in files]
        syncs = [SyncDirectory(name) for name in sorted({path.rpartition("/")[0] for path, _ in files})]
        encoded = encode_root(root)
        steps: list[Step] = [*puts, *syncs, Put(temporary, encoded)]
        if self._file.in_folder():
            self._replace_at_once(steps, temporary)
            self.current = root
            self._file.replaced(encoded, root)
            return
        with contextlib.ExitStack() as undo:
            write_new(folder, steps, undo)
            # From here on nothing may be deleted, whatever interrupts: the root may name it.
            written = undo.pop_all()
        try:
            folder.rename(temporary, ROOT)
        except (NoSuchFile, PermissionDenied, NotSupported):
            written.close()
            raise
        except TransportError as wrong:
            raise OutcomeUnknown(f"putting the new root in place failed: {wrong}") from wrong
        self.current = root
        try:
            folder.sync_directory("")
        except TransportError as wrong:
            raise OutcomeUnknown(f"the new root may not survive a loss of power: {wrong}") from wrong
        self._file.replaced(encoded, root)

    def _replace_at_once(self, steps: Sequence[Step], temporary: str) -> None:
        """Write, rename and sync in one go, for a store behind a link: what it refuses before the rename changed
        nothing; what it refuses there or later, neither where the old root is there still; of what else fails nobody
        knows."""
        folder = self._file.folder
        try:
            folder.perform([*steps, Rename(temporary, ROOT), SyncDirectory("")])
        except TransportFailed as wrong:
            raise OutcomeUnknown(f"putting the new root in place failed: {wrong}") from wrong
        except TransportError as wrong:
            refused = str(getattr(wrong, "path", ""))
            before = [f"{self._file.path}/{step.path}".lstrip("/") for step in steps]
            named = any(refused == path or refused.endswith(f"/{path}") for path in before)
            if not named and not self._is_current():
                raise OutcomeUnknown(f"putting the new root in place failed: {wrong}") from wrong
            for step in steps:
                if isinstance(step, Put):
                    _discard(folder, step.path)
            if isinstance(wrong, NoSuchFile) and f"{HELD}/" in refused:
                raise LockBroken(refused, "the lock was broken while it was held; nothing was changed") from wrong
            raise

    def _is_current(self) -> bool:
        """Whether the root is surely the one that was read under the lock."""
        try:
            there = self._file.read()
        except (NoSuchRepository, CorruptFile, Unsupported, TransportError):
            return False
        return (there.incarnation, there.version) == (self.current.incarnation, self.current.version)

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


class LockBroken(TransportFailed):
    """Somebody broke the lock of a `folder` repository while its holder was at it: nothing changed."""


def write_new(folder: Transport, steps: Sequence[Step], undo: contextlib.ExitStack) -> None:
    """Write new files and make their content durable, in one go; `undo` deletes them, as far as that works.

    Raises:
        FileExists: a name is taken, and stays as it is.
        TransportError: the store failed.
    """
    with contextlib.ExitStack() as failed:
        for step in steps:
            if isinstance(step, Put):
                failed.callback(_discard, folder, step.path)
        try:
            folder.perform(steps)
        except FileExists:
            failed.pop_all()  # Whichever it was. What was made before it is nobody's, as after a crash.
            raise
        undo.push(failed.pop_all())


def _discard(folder: Transport, path: str) -> None:
    with contextlib.suppress(TransportError):
        folder.delete(path)
