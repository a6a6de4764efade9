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

from smartserver.errors import InvalidPath, NestedRepository, NoSuchRepository, OutcomeUnknown, Unsupported
from smartserver.store.document import Root, check_writable, decode_root, empty_root, encode_root
from smartserver.store.format import (
    FOLDERS,
    FORMAT,
    LOCK,
    LOG,
    NAMES,
    PACKS,
    ROOT,
    SPOKEN,
    TABLES,
    Discipline,
    Format,
    parse_format,
    recognise,
)
from transports.base import Capability, EntryKind, Transport
from transports.errors import FileExists, Locked, NoSuchFile, NotADirectory, PermissionDenied, TransportError

TEMPORARY = (f"{ROOT}.", f"{FORMAT}.")
"""What begins the names a crash may leave in the repository's folder; only a holder of the lock makes them."""


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
        self._above = transport
        self._randomness = randomness
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

    def create(self, root: Root, files: Sequence[tuple[str, bytes]] = ()) -> bool:
        """Make the repository, or make it anew over a tombstone; False when there is one.

        Raises:
            NestedRepository: it would lie inside another one.
            InvalidPath: the folder holds something else.
            Unsupported: the store cannot lock, or what is there has an unknown format.
            OutcomeUnknown: it may exist now.
        """
        with self.swapping(create=True) as swap:
            if swap.existing is not None and not swap.existing.deleted:
                return False
            swap.replace(root, files)
            return True

    def prepare(self) -> None:
        """Make the repository's folders, all durable; half-made ones are taken over. Without a root it is none yet.

        Raises:
            NestedRepository, InvalidPath, Unsupported: as `create`.
        """
        if not self.folder.capabilities & Capability.LOCK:
            raise Unsupported("a new repository on a store without file locks", SPOKEN)
        places = self._places()
        file = self._file_in_the_way()
        if file is not None:
            raise InvalidPath(self.path, "a file is there" if file == self.path else f"{file!r} is a file")
        for place in places[:-1]:
            above = f"{place}/" if place else ""
            if self._above.exists(above + ROOT) and self._above.exists(above + FORMAT):
                raise NestedRepository(self.path, place)
            foreign = recognise(self._above.child(place)) if place else None
            if foreign is not None:
                raise InvalidPath(self.path, f"{place!r} is {foreign}: nothing is made inside it")
        for place in places[1:]:
            _ensure_folder(self._above, place)
            if not self._above.exists(place):
                raise InvalidPath(self.path, f"{place!r} is a link that leads nowhere")
        other = recognise(self.folder)
        if other is not None:
            raise InvalidPath(self.path, f"{other} is there")
        for name in self.folder.list_directory(""):
            if name not in NAMES and not name.startswith(TEMPORARY):
                raise InvalidPath(self.path, f"the folder holds {name!r}, which belongs to no repository")
        remains = self._remains()
        if remains:
            raise InvalidPath(self.path, f"the folder holds {remains}: restore that file, or move the folder away")
        for name in FOLDERS:
            _ensure_folder(self.folder, name)
        # Also what another process made: it may have crashed before it synced.
        for place in places[::-1]:
            self._above.sync_directory(place)

    def instead(self) -> str:
        """What lies where no repository is, for a message; empty where that is nothing, or cannot be told."""
        try:
            file = self._file_in_the_way()
            if file is not None:
                return "a file" if file == self.path else f"a file at {file!r}"
            remains = self._remains()
            if not remains and _names_in(self.folder, PACKS) and not self.folder.exists(ROOT):
                remains = f"{PACKS!r} files and no {ROOT!r}"
            return recognise(self.folder) or (f"what is left of one: {remains}" if remains else "")
        except TransportError:
            return ""

    def _places(self) -> list[str]:
        """The folders on the way to the repository's, the store's own first, and its own."""
        parts = self.path.split("/") if self.path else []
        return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]

    def _file_in_the_way(self) -> str | None:
        """The first of the places that is there and is no folder."""
        for place in self._places()[1:]:
            try:
                if self._above.stat(place).kind is not EntryKind.DIRECTORY:
                    return place
            except NoSuchFile:
                break
        return None

    def _remains(self) -> str:
        """What says that there was a repository, which has lost its root or its format; empty where nothing does.

        No repository is ever made over one: its packs may be all there is. Creations that were killed, or are going on,
        leave packs too, but no log and no tables without a root: `Swap.replace` sees to it.
        """
        # Listed before the root is looked for: a creation that is going on writes it first.
        kept = next((place for place in (LOG, TABLES) if _names_in(self.folder, place)), "")
        if self.folder.exists(ROOT):
            # With a format it is a whole one, some of whose folders were taken away.
            return "" if self.folder.exists(FORMAT) else f"a root and no {FORMAT!r}"
        return f"{kept!r} files and no {ROOT!r}" if kept else ""

    @contextlib.contextmanager
    def swapping(self, *, create: bool = False) -> Iterator[Swap]:
        """Hold the repository's lock, with the root read again under it; no waiting for a client in here.

        `create`: accept that there is no repository, and prepare one.

        Raises:
            NoSuchRepository: there is none.
            CorruptFile: the root is damaged.
            Unsupported: its format or a feature is not one this release writes.
            Locked: another writer holds the lock and does not let go of it; nothing changed.
        """
        if create and self._find() is None:
            self.prepare()
        elif self._read_format() is None:
            raise NoSuchRepository(self.path)
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._locked())
            except (NoSuchFile, NotADirectory):
                raise NoSuchRepository(self.path) from None
            existing = self._find()
            if existing is None and not create:
                raise NoSuchRepository(self.path)
            if existing is not None:
                check_writable(existing)
            elif self._read_format() is None:
                self._write_format()
            yield Swap(self, existing, self._randomness)

    def sweep(self, *, half_made: bool = False) -> list[str]:
        """Delete temporary files that crashed writers left in the repository's folder; their names. `half_made`: it is
        the folder of a repository that was never finished.

        Raises:
            NoSuchRepository: there is none.
        """
        with self._locked() if half_made else self.swapping():
            left = [name for name in self.folder.list_directory("") if name.startswith(TEMPORARY)]
            for name in left:
                self.folder.delete(name)
        return left

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
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

    def _write_format(self) -> None:
        found = Format(Discipline.FILE)
        with contextlib.ExitStack() as undo:
            temporary = f"{FORMAT}.{self._randomness(8).hex()}"
            write_new(self.folder, temporary, found.line(), undo)
            self.folder.rename(temporary, FORMAT)
            undo.pop_all()
        self.folder.sync_directory("")
        self._format = found


class Swap:
    """The right to replace the root, while the lock is held."""

    def __init__(self, file: RootFile, existing: Root | None, randomness: Callable[[int], bytes]) -> None:
        self.existing = existing
        """The root as read under the lock, a tombstone too; None: there is no repository."""
        self._file = file
        self._randomness = randomness

    @property
    def current(self) -> Root:
        """The root as read under the lock; a tombstone is one with `deleted` set.

        Raises:
            NoSuchRepository: there is none.
        """
        if self.existing is None:
            raise NoSuchRepository(self._file.path)
        return self.existing

    def replace(self, root: Root, files: Sequence[tuple[str, bytes]] = ()) -> None:
        """Make `files` durable, then `root` the repository's root.

        Raises:
            RootMoved: `root` was not made from the root that is there.
            LimitExceeded: it takes more than 64 KiB.
            OutcomeUnknown: the rename or what follows failed; the root is the old one or the new one.
            TransportError: nothing changed.
        """
        self._check_succession(root)
        content = encode_root(root)
        folder = self._file.folder
        if self.existing is None and files:
            self._hold_place(root)
        with contextlib.ExitStack() as undo:
            for path, file_content in files:
                write_new(folder, path, file_content, undo)
            for name in sorted({path.rpartition("/")[0] for path, _ in files}):
                folder.sync_directory(name)
            temporary = f"{ROOT}.{self._randomness(8).hex()}"
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
        self.existing = root
        try:
            folder.sync_directory("")
        except TransportError as wrong:
            raise OutcomeUnknown(f"the new root may not survive a loss of power: {wrong}") from wrong

    def _hold_place(self, root: Root) -> None:
        """Put an empty tombstone where `root` will be, as if a repository had been deleted.

        There never is a table or a log file without a root: what is left of a creation that is cut short is no
        repository and may be made anew, and what is left of one that lost its root may not.
        """
        folder = self._file.folder
        empty = empty_root(self._randomness(16), root.vcs, root.kinds, now=0)
        held = msgspec.structs.replace(empty, version=1, deleted=True)
        with contextlib.ExitStack() as undo:
            temporary = f"{ROOT}.{self._randomness(8).hex()}"
            write_new(folder, temporary, encode_root(held), undo)
            folder.rename(temporary, ROOT)
            undo.pop_all()
        folder.sync_directory("")
        self.existing = held

    def _check_succession(self, root: Root) -> None:
        old = self.existing
        if old is None or (old.deleted and old.incarnation != root.incarnation):
            if root.version == 1:
                return
        elif (old.incarnation, old.version + 1) == (root.incarnation, root.version):
            return
        there = "none" if old is None else f"version {old.version} of {old.incarnation.hex()}"
        raise RootMoved(f"version {root.version} of {root.incarnation.hex()} cannot follow {there}")


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


def _names_in(folder: Transport, place: str) -> list[str]:
    try:
        return folder.list_directory(place)
    except (NoSuchFile, NotADirectory):
        return []


def _ensure_folder(transport: Transport, path: str) -> None:
    with contextlib.suppress(FileExists):
        transport.make_directory(path)
