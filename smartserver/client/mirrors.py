"""The folders of mirrors: local copies of repositories on servers, for reading. Their sizes are bounded.

A mirror may be removed at any time without loss, and it is complete before it gets its name. Each has a folder named
after the URL and incarnation of its repository, so that a recreated repository never meets copies of the old one. A
mirror that is in use is locked, and so is one that is being written; the locks end with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

MIRROR_BYTES: Final = 1_000_000_000
"""The default limit of bytes of one mirror. A history of 3,000 revisions and 270 files takes 3.1 MB."""

ALL_MIRRORS: Final = 4
"""The limit of all mirrors of a user together, as a multiple of the limit of one mirror."""

USE = ".use"
WRITE = ".write"
ADD = ".add"
NEW = ".new"
GONE = ".gone-"

URL_FILE = "url"
"""The file in a mirror's folder that has the URL of the mirrored repository."""


class MirrorEntry(NamedTuple):
    """An existing mirror."""

    name: str
    url: str
    size: int
    used: float
    """The time of the last use, in seconds since 1970."""


class Mirrors:
    """The mirrors of one user, in a folder that only this user may read."""

    def __init__(self, folder: str, limit: int = MIRROR_BYTES) -> None:
        """`limit`: the most bytes of one mirror. All mirrors together may take `ALL_MIRRORS` times that."""
        self.folder = folder
        self.limit = limit

    def place(self, url: str, incarnation: bytes) -> MirrorFolder:
        """Return the folder of one repository's mirror, even if the mirror does not exist yet."""
        return MirrorFolder(self, f"{_digest(url)}-{incarnation.hex()}", url)

    def kept(self) -> list[MirrorEntry]:
        """Return all existing mirrors, the last used first."""
        found = []
        for name in self._names():
            path = os.path.join(self.folder, name)
            if "." not in name and os.path.isdir(path):
                found.append(MirrorEntry(name, _read(os.path.join(path, URL_FILE)), size_of(path), _used(path)))
        return sorted(found, key=lambda mirror: mirror.used, reverse=True)

    def remove(self, name: str) -> bool:
        """Remove a mirror unless it is in use. Return True if it no longer exists."""
        path = os.path.join(self.folder, name)
        with contextlib.suppress(OSError), _locked(path + USE) as alone:
            if alone:
                discard(path)
        return not os.path.isdir(path)

    def remove_beside(self, name: str) -> None:
        """Remove the other mirrors of the same URL."""
        for other in self._names():
            if "." not in other and other != name and other.partition("-")[0] == name.partition("-")[0]:
                self.remove(other)

    def make_room(self, wanted: int, best: str = "") -> bool:
        """Remove mirrors, the least recently used first, until there is room for `wanted` more bytes. Return False if
        there is not.

        `best`: the name of a mirror that is not removed.
        """
        self._sweep()
        left = self.limit * ALL_MIRRORS - wanted - size_of(self.folder)
        for mirror in reversed(self.kept()):
            if left >= 0:
                break
            if mirror.name != best and self.remove(mirror.name):
                left += mirror.size
        return left >= 0

    def _sweep(self) -> None:
        """Remove the files that killed processes left."""
        for name in self._names():
            path = os.path.join(self.folder, name)
            if GONE in name:
                shutil.rmtree(path, ignore_errors=True)
            elif name.endswith(NEW):
                with contextlib.suppress(OSError), _locked(path.removesuffix(NEW) + WRITE) as alone:
                    if alone:
                        shutil.rmtree(path, ignore_errors=True)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except OSError:
            return []


class MirrorFolder:
    """The folder of one repository's mirror. The mirror need not exist yet."""

    def __init__(self, mirrors: Mirrors, name: str, url: str) -> None:
        self.name = name
        self.path = os.path.join(mirrors.folder, name)
        self._mirrors = mirrors
        self._url = url
        self._in_use = False

    def use(self) -> bool:
        """Keep the mirror from being removed as long as this object lives. Return True if the mirror exists."""
        if not self._in_use and os.path.isdir(self.path):
            lock = _lock(self.path + USE, fcntl.LOCK_SH)
            if lock is None:
                return False  # Another process is removing it.
            self._in_use = True
            weakref.finalize(self, _end_use, self._mirrors, self.name, lock)
            with contextlib.suppress(OSError):
                os.utime(self.path + USE)
        return self._in_use and os.path.isdir(self.path)

    def size(self) -> int:
        """Return the bytes of the mirror."""
        return size_of(self.path)

    def takes(self, more: int) -> bool:
        """Tell whether the mirror may grow by `more` bytes. Other mirrors are removed if that is necessary."""
        return self.size() + more <= self._mirrors.limit and self._mirrors.make_room(more, self.name)

    @contextmanager
    def adding(self, tidy: Callable[[], None], *, known: bool = True) -> Iterator[None]:
        """Hold the locks for adding to the mirror. With `known`, only one process adds at a time, because another may
        be about to add the same content. `tidy`: called first if no other process is adding, to remove the files that
        killed processes left."""
        with _locked(self.path + WRITE) as alone:
            if alone:
                tidy()
        locks = [_lock(self.path + ADD, fcntl.LOCK_EX, wait=True)] if known else []
        locks.append(_lock(self.path + WRITE, fcntl.LOCK_SH, wait=True))
        try:
            yield
        finally:
            for lock in locks:
                if lock is not None:
                    os.close(lock)

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Hold the lock for creating the mirror. Yield False if another process creates it or adds to it. At the end an
        unpublished folder is removed."""
        os.makedirs(self._mirrors.folder, mode=0o700, exist_ok=True)
        with _locked(self.path + WRITE) as alone:
            try:
                yield alone
            finally:
                if alone:
                    shutil.rmtree(self.path + NEW, ignore_errors=True)

    def begin(self) -> str:
        """Return a new folder in which to create the mirror. This must be called in `writing`."""
        path = self.path + NEW
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path, mode=0o700)
        return path

    def publish(self, path: str) -> None:
        """Give a folder from `begin` the name of the mirror; call this in `writing`."""
        with open(os.path.join(path, URL_FILE), "w", encoding="utf-8") as file:
            file.write(self._url)
        os.rename(path, self.path)
        self.remove_older()

    def remove_older(self) -> None:
        """Remove the mirrors of repositories that were at this URL before."""
        self._mirrors.remove_beside(self.name)

    def throw_away(self) -> None:
        """Remove the mirror because it is damaged, even if it is in use."""
        discard(self.path)


def discard(path: str) -> None:
    """Remove a folder as far as possible. The folder is renamed first, so that its name is free at once."""
    gone = f"{path}{GONE}{os.getpid()}-{time.monotonic_ns()}"
    try:
        os.rename(path, gone)
    except OSError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def size_of(folder: str) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):  # It was removed meanwhile.
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def _end_use(mirrors: Mirrors, name: str, lock: int) -> None:
    """Release a mirror, and remove it if it has exceeded its limit."""
    os.close(lock)
    if size_of(os.path.join(mirrors.folder, name)) > mirrors.limit:
        mirrors.remove(name)


def _digest(url: str) -> str:
    return hashlib.blake2b(url.encode(), digest_size=16).hexdigest()


def _used(path: str) -> float:
    for file in (path + USE, path):
        with contextlib.suppress(OSError):
            return os.stat(file).st_mtime
    return 0.0


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def _lock(path: str, how: int, *, wait: bool = False) -> int | None:
    """Lock a file, which is created if missing and never deleted. Return its descriptor, or None if another process
    holds the lock and `wait` is false."""
    file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, how if wait else how | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return file


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Lock a file exclusively. Yield False if another process has a lock on it."""
    lock = _lock(path, fcntl.LOCK_EX)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)
