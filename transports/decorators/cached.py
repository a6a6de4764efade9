"""`CachedTransport`: a remote store, with copies of immutable files in a folder of this machine.

The folder has a maximum size, is shared by any number of processes and survives a restart. Every copy can be fetched
again. A copy is the content and a hash of the content, which each process checks when it first opens the copy.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path

from transports.base import Capability, ReadFile, Step, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import TransportError
from transports.local import LocalTransport
from transports.steps import Get, ReadRanges, Rename

CHECK = 16
"""The size in bytes of the BLAKE2b hash that follows the content of a copy."""
PIECE = 8 << 20
"""The most bytes of one read while an open file is copied or a copy is checked."""
AT_ONCE = 64
"""The number of locks that keep the threads of a process from making the same copy twice."""
REMEMBERED = 1 << 16
"""The most names of copies that a process remembers as checked."""
SLACK = 16
"""After a process has added 1/SLACK of the folder's maximum size, it deletes old copies until as much is free."""


class CacheFolder:
    """A folder with copies of files. Any number of threads and processes may use it."""

    def __init__(self, folder: Path, size: int) -> None:
        """`folder`: is created if missing, readable by its owner alone. `size`: its approximate maximum in bytes.

        Raises:
            OSError: the folder cannot be created.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.size = size
        self._folder, self._files = folder, LocalTransport(folder)
        self._guard = threading.Lock()
        self._making = [threading.Lock() for _ in range(AT_ONCE)]
        self._checked: set[str] = set()
        """Names of copies that this process has checked; some may be forgotten."""
        self._added = size // SLACK
        """Bytes added since the last `_make_room`. The initial value is the limit, so that the first `add` makes
        room."""

    def open(self, name: str) -> ReadFile | None:
        """Open the copy with that name. Return None if it is missing or damaged."""
        path = self._at(name)
        try:
            file = _Copy(self._files.open_read(path))
            if name not in self._checked:
                if not file.is_whole():
                    file.close()
                    (self._folder / path).unlink(missing_ok=True)
                    return None
                self._remember(name)
            os.utime(self._folder / path)
        except (TransportError, OSError):  # The file can be fetched from the store.
            return None
        return file

    def _remember(self, name: str) -> None:
        if len(self._checked) >= REMEMBERED:
            self._checked.clear()
        self._checked.add(name)

    def distrust(self) -> None:
        """Mark all copies as unchecked, so that each is checked again when it is next opened."""
        self._checked.clear()

    def one_at_a_time(self, name: str) -> threading.Lock:
        """Return the lock that a thread of this process must hold while it makes the copy with that name."""
        return self._making[hash(name) % AT_ONCE]

    def has(self, name: str) -> bool:
        """Tell whether a copy with that name exists. The copy may be damaged."""
        return (self._folder / self._at(name)).exists()

    def _at(self, name: str) -> str:
        return f"{name[:2]}/{name}"

    def add(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write the content `pieces` and its hash as the copy with that name, atomically.

        Raises:
            OSError: the copy cannot be written.
        """
        path, new = self._folder / self._at(name), self._folder / "new"
        for folder in (self._folder, path.parent, new):  # A user may have deleted the whole folder.
            folder.mkdir(mode=0o700, exist_ok=True)
        check, size = blake2b(digest_size=CHECK), CHECK
        descriptor, temporary = tempfile.mkstemp(dir=new)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for piece in pieces:
                    check.update(piece)
                    size += file.write(piece)
                file.write(check.digest())
            os.rename(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._remember(name)
        with self._guard:
            self._added += size
            is_due = self._added >= self.size // SLACK
            self._added = 0 if is_due else self._added
        if is_due:
            self._make_room()

    def _make_room(self) -> None:
        """Delete the least recently used copies, and files that a killed process left. Open copies stay readable."""
        found: list[tuple[float, int, Path]] = []
        for path in self._folder.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        left = sum(size for _, size, _ in found) - (self.size - self.size // SLACK)
        for _, size, path in sorted(found):
            if left <= 0:
                break
            path.unlink(missing_ok=True)
            left -= size


class _Copy(ReadFile):
    """The content of an open copy, without its hash. It stays readable when the copy is deleted."""

    def __init__(self, file: ReadFile) -> None:
        self._file, self._size = file, file.size() - CHECK

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, max(min(size, self._size - offset), 0))

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._file.close()

    def is_whole(self) -> bool:
        """Tell whether the hash after the content is right."""
        check = blake2b(digest_size=CHECK)
        for offset in range(0, self._size, PIECE):
            check.update(self.read_at(offset, PIECE))
        return self._size >= 0 and self._file.read_at(self._size, CHECK) == check.digest()


class CachedTransport(PassingTransport):
    """The files of `inner`. Files whose path from the outermost transport matches `immutable` are read from copies.

    `stat`, `exists` and listings still ask the store. A file that is larger than half of the folder is not copied.
    """

    def __init__(self, inner: Transport, folder: CacheFolder, immutable: re.Pattern[str], *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        # Most reads are local. The other steps come in few round trips anyway.
        self.capabilities = inner.capabilities & ~Capability.ROUND_TRIPS
        self.folder = folder
        self._immutable = immutable

    def wrap(self, inner: Transport, prefix: str) -> CachedTransport:
        return CachedTransport(inner, self.folder, self._immutable, prefix=prefix)

    def open_read(self, path: str) -> ReadFile:
        if self._immutable.fullmatch(self.full(path)) is None:
            return self.inner.open_read(path)
        name = self._name(path)
        if (found := self.folder.open(name)) is not None:
            return found
        with self.folder.one_at_a_time(name):
            if (found := self.folder.open(name)) is not None:  # Another thread has made the copy.
                return found
            file = self.inner.open_read(path)
            # The new copy may be gone: another process may have deleted it to make room.
            found = self.folder.open(name) if self._keep(path, file) else None
        if found is None:
            return file
        file.close()
        return found

    def rename(self, source: str, target: str) -> None:
        self._bring(source, target)
        self.inner.rename(source, target)

    def perform(self, steps: Sequence[Step]) -> None:
        for is_kept, group in groupby(steps, self._is_kept):
            run = list(group)
            if is_kept:
                self._fetch([Get(step.path) for step in run if isinstance(step, Get)])
                for step in run:
                    step.do(self)
                continue
            for step in run:
                if isinstance(step, Rename):
                    self._bring(step.path, step.target)
            self.inner.perform(run)

    def _fetch(self, steps: Sequence[Get]) -> None:
        """Download the files that have no copy yet, in one round trip, and make their copies."""
        lacking = [step for step in steps if not self.folder.has(self._name(step.path))]
        if lacking:
            self.inner.perform(lacking)
            for step in lacking:
                if step.result is not None:
                    self._copy(step.path, len(step.result), iter([step.result]))

    def _name(self, path: str) -> str:
        return blake2b(self.inner.describe(path).encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()

    def _keep(self, path: str, file: ReadFile) -> bool:
        """Create a copy of `file` for `path`, which may be its future name. Return False if no copy was created."""
        size = file.size()
        return self._copy(path, size, (file.read_at(offset, PIECE) for offset in range(0, size, PIECE)))

    def _copy(self, path: str, size: int, pieces: Iterator[bytes]) -> bool:
        """Make a copy of `pieces`, `size` bytes in all. Return False if the file is too large or the disk failed."""
        if size > self.folder.size // 2:
            return False
        try:
            self.folder.add(self._name(path), pieces)
        except OSError:  # For example, the disk of the copies is full.
            return False
        return True

    def _bring(self, source: str, target: str) -> None:
        """Copy a file before this process renames it to an immutable name, because it is likely to be read next."""
        if self._immutable.fullmatch(self.full(target)) is not None:
            with contextlib.suppress(TransportError), contextlib.closing(self.inner.open_read(source)) as file:
                self._keep(target, file)

    def _is_kept(self, step: Step) -> bool:
        return isinstance(step, Get | ReadRanges) and self._immutable.fullmatch(self.full(step.path)) is not None

    def get(self, path: str) -> bytes:
        if self._immutable.fullmatch(self.full(path)) is None:
            return self.inner.get(path)
        with contextlib.closing(self.open_read(path)) as file:
            return file.read_at(0, file.size())


def distrust_copies(transport: Transport) -> None:
    """Mark all copies that a transport uses as unchecked (`CacheFolder.distrust`)."""
    while isinstance(transport, PassingTransport):
        if isinstance(transport, CachedTransport):
            transport.folder.distrust()
        transport = transport.inner


def without_copies(transport: Transport) -> Transport:
    """Return a transport with the same files that uses no copies; `transport` itself if it uses none."""
    if isinstance(transport, CachedTransport):
        return transport.inner
    if isinstance(transport, PassingTransport):
        inner = without_copies(transport.inner)
        return transport if inner is transport.inner else transport.wrap(inner, transport.prefix)
    return transport
