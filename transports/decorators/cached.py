"""`CachedTransport`: a store behind a link, with files that never change kept in a folder of this machine.

The folder is bounded, is shared by any number of processes, and survives a restart: all it has can be fetched again. A
file in it is the content and a hash of that, which each process checks when it first opens the file.
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
"""Bytes of BLAKE2b behind the content of a file."""
PIECE = 8 << 20
"""Bytes that are fetched at once."""
AT_ONCE = 64
"""Copies that one process makes at once."""
REMEMBERED = 1 << 16
"""Names of copies that a process remembers to be whole."""
SLACK = 16
"""The folder is looked through when a process has added this part of its size, and then has as much room again."""


class CacheFolder:
    """A folder with copies of files; for any number of threads and processes."""

    def __init__(self, folder: Path, size: int) -> None:
        """`folder`: is made where it is not there, for its owner alone. `size`: bytes that it may have, about.

        Raises:
            OSError: it cannot be made or read.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.size = size
        self._folder, self._files = folder, LocalTransport(folder)
        self._guard = threading.Lock()
        self._making = [threading.Lock() for _ in range(AT_ONCE)]
        self._checked: set[str] = set()
        """Names of copies that this process has found to be whole; not all of them."""
        self._added = size // SLACK
        """Bytes that were added since the folder was looked through."""

    def open(self, name: str) -> ReadFile | None:
        """The copy with that name; None where there is none that is whole."""
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
        except (TransportError, OSError):  # The store has it.
            return None
        return file

    def _remember(self, name: str) -> None:
        if len(self._checked) >= REMEMBERED:
            self._checked.clear()
        self._checked.add(name)

    def distrust(self) -> None:
        """Check copies again when they are next opened."""
        self._checked.clear()

    def one_at_a_time(self, name: str) -> threading.Lock:
        """Held by the thread of this process that makes the copy with that name."""
        return self._making[hash(name) % AT_ONCE]

    def has(self, name: str) -> bool:
        """True if there is a copy with that name, whole or not."""
        return (self._folder / self._at(name)).exists()

    def _at(self, name: str) -> str:
        return f"{name[:2]}/{name}"

    def add(self, name: str, pieces: Iterator[bytes]) -> None:
        """Keep a copy. It is there whole, or not at all.

        Raises:
            OSError: it cannot be written.
        """
        path, new = self._folder / self._at(name), self._folder / "new"
        for folder in (self._folder, path.parent, new):  # The first is gone where somebody deleted all of it.
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
        """Delete the least recently used, what a process that was killed left, too. One that has it open reads on."""
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
    """A copy, without the hash behind it. It stays readable when it is deleted."""

    def __init__(self, file: ReadFile) -> None:
        self._file, self._size = file, file.size() - CHECK

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, max(min(size, self._size - offset), 0))

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._file.close()

    def is_whole(self) -> bool:
        """True if the hash behind the content is right."""
        check = blake2b(digest_size=CHECK)
        for offset in range(0, self._size, PIECE):
            check.update(self.read_at(offset, PIECE))
        return self._size >= 0 and self._file.read_at(self._size, CHECK) == check.digest()


class CachedTransport(PassingTransport):
    """The tree of `inner`; what `immutable` matches, by its path from the outermost transport, is read from copies.

    Whether such a file is there is asked of the store. One that is larger than half of the folder is not kept.
    """

    def __init__(self, inner: Transport, folder: CacheFolder, immutable: re.Pattern[str], *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        # Reads are of this machine; what else is asked comes in a few trips as it is.
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
            if (found := self.folder.open(name)) is not None:  # Another thread has made it.
                return found
            file = self.inner.open_read(path)
            # Another process may have needed the room.
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
        """Make copies, in one trip, of files of which there is none."""
        lacking = [step for step in steps if not self.folder.has(self._name(step.path))]
        if lacking:
            self.inner.perform(lacking)
            for step in lacking:
                if step.result is not None:
                    self._copy(step.path, len(step.result), iter([step.result]))

    def _name(self, path: str) -> str:
        return blake2b(self.inner.describe(path).encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()

    def _keep(self, path: str, file: ReadFile) -> bool:
        """Make a copy of the file that has that path, or will have it. False where there is none."""
        size = file.size()
        return self._copy(path, size, (file.read_at(offset, PIECE) for offset in range(0, size, PIECE)))

    def _copy(self, path: str, size: int, pieces: Iterator[bytes]) -> bool:
        """Make a copy of that many bytes. False where there is none."""
        if size > self.folder.size // 2:
            return False
        try:
            self.folder.add(self._name(path), pieces)
        except OSError:  # The disk of the copies is full, say: the store has it.
            return False
        return True

    def _bring(self, source: str, target: str) -> None:
        """Keep a copy of what this process is about to give its name, which is used once: it is asked for next."""
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
    """Check the copies that a transport has before they are read again: one may be damaged."""
    while isinstance(transport, PassingTransport):
        if isinstance(transport, CachedTransport):
            transport.folder.distrust()
        transport = transport.inner


def without_copies(transport: Transport) -> Transport:
    """The same tree, read from the store itself; the transport itself where it has no copies."""
    if isinstance(transport, CachedTransport):
        return transport.inner
    if isinstance(transport, PassingTransport):
        inner = without_copies(transport.inner)
        return transport if inner is transport.inner else transport.wrap(inner, transport.prefix)
    return transport
