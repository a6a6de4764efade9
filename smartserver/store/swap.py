"""How the root is read and replaced: the only module that writes `format`, `root` and `lock`.

Write order: the files a new root names, synced, their folders synced; then, all under the lock, the new root under a
temporary name, synced, renamed to `root`, the folder synced. A crash anywhere leaves the old root or the new one (of a
creation: none, a tombstone or the new one). What fails before the rename changed nothing; what fails at or after it is
`OutcomeUnknown`, and no sync is tried twice.

The lock, and how the root is replaced under it, is what the repository's format says (`publish`), whatever the writer's
way to it is.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from smartserver.errors import CorruptFile, LimitExceeded, NoSuchRepository, Unsupported
from smartserver.meters import LOCK_TIME, LOCKS, here
from smartserver.records.model import Kind
from smartserver.spans import Part, span
from smartserver.store.document import Root, check_writable, decode_root, empty_root, encode_root
from smartserver.store.format import FORMAT, LOCK, ROOT, SPOKEN, TEMPORARY, Discipline, Format, is_marked, parse_format
from smartserver.store.lock_folder import HeldLock
from smartserver.store.publish.base import Publisher, write_new
from smartserver.store.publish.file import FilePublisher
from smartserver.store.publish.folder import FolderPublisher
from transports.base import Capability, EntryKind, Step, Transport
from transports.errors import Locked, NoSuchFile, NotADirectory, TransportError, TransportFailed
from transports.steps import Delete, Get, GetStat, ListDirectory, Put, SyncDirectory

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
        self._publishers: dict[Discipline, Publisher] = {
            Discipline.FILE: FilePublisher(transport, path, randomness),
            Discipline.FOLDER: FolderPublisher(transport, path, randomness),
        }
        self._format: Format | None = None
        self._turn = threading.Lock()
        """Taken before the repository's lock: a thread of this process learns at once that another has released it."""
        self._stuck_until = 0.0
        """Until then no thread waits for the lock: one did, in vain."""
        self.durable: Root | None = None
        """The last root that is known to survive a loss of power."""
        self._decoded: tuple[bytes, Root] | None = None
        """The content read or written last, and its root: most reads find the same, and to decode it takes 1 ms."""

    @property
    def publisher(self) -> Publisher:
        """That of the repository, as far as its format was read; else of one that is made here."""
        return self._publishers[(self._format or self.new).discipline]

    def read(self, *, durable: bool = False) -> Root:
        """The root as it is now; a tombstone is one with `deleted` set. `durable`: make it so in the same trip, where
        the repository is behind a link.

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

    def begin(self, held: HeldLock, vcs: str, kinds: Sequence[Kind]) -> None:
        """Put a format and an empty tombstone where there is no root, under the lock that is `held`.

        Raises:
            CorruptFile, Unsupported: a root is there that cannot be read.
            TransportError: the store failed; there is no repository, as before.
        """
        if self._find() is not None:
            self.folder.sync_directory("")  # Its writer may have crashed before it did.
            return
        if self.format() is None:
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
            CorruptFile: the root is damaged.
            Unsupported: its format or a feature is not one this release writes.
            Locked: another writer holds the lock and does not let go of it; nothing changed.
        """
        if self.format() is None:
            raise NoSuchRepository(self.path)
        first = self.publisher.do_before_lock(first)  # Others of this process need not wait for that.
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

    def half_made(self) -> Publisher:
        """That of a repository that was begun here and has no root: its lock says what it was to be."""
        lock = GetStat(LOCK)
        self.folder.perform([lock])
        is_folder = lock.result is not None and lock.result.kind is EntryKind.DIRECTORY
        return self._publishers[Discipline.FOLDER if is_folder else Discipline.FILE]

    def sweep(self, *, half_made: bool = False) -> list[str]:
        """Delete temporary files that crashed writers left in the repository's folder; their names. `half_made`: it is
        the folder of a repository that was never finished."""
        with self.locked() if half_made else self.swapping():
            names = ListDirectory("")
            self.folder.perform([names])
            left = [name for name in names.result or () if name.startswith(TEMPORARY)]
            self.folder.perform([Delete(name) for name in left])
        return left

    @contextlib.contextmanager
    def locked(self, first: Sequence[Step] = (), needed: Sequence[str] = ()) -> Iterator[HeldLock]:
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

        began = time.perf_counter_ns()
        with contextlib.ExitStack() as until:
            try:
                self.format()
                with span(Part.LOCK):
                    held = until.enter_context(self.publisher.hold(queue, first, needed))
                here.tally[LOCKS] += 1
            except Locked as wrong:
                if wait:
                    self._stuck_until = time.monotonic() + LOCK_WAIT
                raise Locked(wrong.path, int(LOCK_WAIT), wrong.holder) from None
            finally:
                here.tally[LOCK_TIME] += time.perf_counter_ns() - began
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
                self.format()
                held.enter_context(self.publisher.hold(lambda: 0.0))
                mine = True
            except Locked:
                mine = False
            yield mine

    @property
    def line(self) -> str:
        """What the format file said when it was read, else what it says where a repository is made here."""
        return (self._format or self.new).line().decode().rstrip("\n")

    def temporary(self, held: HeldLock, name: str) -> str:
        """A path under which something is written that gets this name then, by the holder of the lock."""
        return f"{held.folder}{name}.{self.randomness(8).hex()}"

    def _find(self, *, durable: bool = False) -> Root | None:
        root = Get(ROOT)
        if self._format is not None:
            syncs = self.publisher.sync_with_read() if durable else ()
            self.folder.perform([root, *syncs])
            found = self._decode(root.result)
            self.durable = found if syncs else self.durable
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

    def format(self) -> Format | None:
        """What the format file says, read once, obeyed here; None where there is none.

        Raises:
            CorruptFile, Unsupported: it cannot be read.
        """
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

    def _put(self, held: HeldLock, name: str, content: bytes) -> None:
        """Make a whole file appear, durably, in place of what was there: for a holder of the lock."""
        temporary = self.temporary(held, name)
        written = write_new(self.folder, [Put(temporary, content)])
        try:
            self.folder.rename(temporary, name)
        except BaseException:
            written.close()
            raise
        self.folder.sync_directory("")


class Swap:
    """The right to replace the root, while the lock is held."""

    def __init__(self, file: RootFile, held: HeldLock, current: Root) -> None:
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
        temporary = self._file.temporary(self._held, ROOT)
        puts = [Put(path, content) for path, content in files]
        syncs = [SyncDirectory(name) for name in sorted({path.rpartition("/")[0] for path, _ in files})]
        encoded = encode_root(root)
        steps: list[Step] = [*puts, *syncs, Put(temporary, encoded)]
        self._file.publisher.replace(steps, temporary, self._is_current)
        self.current = root
        self._file.replaced(encoded, root)

    def _is_current(self) -> bool:
        """Whether the root is surely the one that was read under the lock."""
        try:
            there = self._file.read()
        except (NoSuchRepository, CorruptFile, Unsupported, TransportError):
            return False
        return (there.incarnation, there.version) == (self.current.incarnation, self.current.version)

    def replace_with_pack(
        self,
        root: Root,
        files: Sequence[tuple[str, bytes]],
        undo: contextlib.ExitStack,
        leave: Callable[[], None],
    ) -> None:
        """As `replace`, where `root` names a new pack: `undo`, which deletes it, is done only where surely nothing
        changed, and else `leave`, which keeps it.

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
