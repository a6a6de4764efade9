"""The folders of mirrors: copies of repositories on servers, kept to be read. Their sizes are bounded.

The rule of this file: a mirror may be gone at any time, and that is no loss; what is there was made whole before it got
its name. There is a folder for each, named after its repository's URL and incarnation: a recreated one never meets what
was copied of the one before. A lock says that it is in use, another that it is written to; both end with the process.
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
"""Bytes of one mirror, unless the user says otherwise: a history of 3,000 revisions and 270 files takes 3.1 MB."""

ALL_MIRRORS: Final = 4
"""The limit of all mirrors of a user, in limits of one."""

USE = ".use"
WRITE = ".write"
ADD = ".add"
NEW = ".new"
GONE = ".gone-"

URL_FILE = "url"
"""The file in a mirror's folder that has the URL of the mirrored repository."""


class MirrorEntry(NamedTuple):
    """A mirror that is there."""

    name: str
    url: str
    size: int
    used: float
    """When it was last used, in seconds since 1970."""


class Mirrors:
    """The mirrors of one user, in a folder that nobody else may read."""

    def __init__(self, folder: str, limit: int = MIRROR_BYTES) -> None:
        """`limit`: bytes of one; all together may take `ALL_MIRRORS` times that."""
        self.folder = folder
        self.limit = limit

    def place(self, url: str, incarnation: bytes) -> MirrorFolder:
        """The folder of the mirror of one repository, which may not be there."""
        return MirrorFolder(self, f"{_digest(url)}-{incarnation.hex()}", url)

    def kept(self) -> list[MirrorEntry]:
        """All that are there, the one used last first."""
        found = []
        for name in self._names():
            path = os.path.join(self.folder, name)
            if "." not in name and os.path.isdir(path):
                found.append(MirrorEntry(name, _read(os.path.join(path, URL_FILE)), size_of(path), _used(path)))
        return sorted(found, key=lambda mirror: mirror.used, reverse=True)

    def remove(self, name: str) -> bool:
        """Remove one, unless it is in use; whether it is gone."""
        path = os.path.join(self.folder, name)
        with contextlib.suppress(OSError), _locked(path + USE) as alone:
            if alone:
                discard(path)
        return not os.path.isdir(path)

    def remove_beside(self, name: str) -> None:
        """Remove those of the same URL but this one."""
        for other in self._names():
            if "." not in other and other != name and other.partition("-")[0] == name.partition("-")[0]:
                self.remove(other)

    def make_room(self, wanted: int, best: str = "") -> bool:
        """Remove mirrors, the least recently used first, until there is room for so many bytes more; whether there is.

        `best`: the one that stays in any case.
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
        """Remove what processes left that were ended."""
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
    """The folder of the mirror of one repository, which may not be there."""

    def __init__(self, mirrors: Mirrors, name: str, url: str) -> None:
        self.name = name
        self.path = os.path.join(mirrors.folder, name)
        self._mirrors = mirrors
        self._url = url
        self._in_use = False

    def use(self) -> bool:
        """Keep it from being removed as long as this object lives; whether there is one."""
        if not self._in_use and os.path.isdir(self.path):
            lock = _lock(self.path + USE, fcntl.LOCK_SH)
            if lock is None:
                return False  # Somebody removes it.
            self._in_use = True
            weakref.finalize(self, _end_use, self._mirrors, self.name, lock)
            with contextlib.suppress(OSError):
                os.utime(self.path + USE)
        return self._in_use and os.path.isdir(self.path)

    def size(self) -> int:
        """Bytes it takes."""
        return size_of(self.path)

    def takes(self, more: int) -> bool:
        """True if it may grow by so many bytes; others are removed for that."""
        return self.size() + more <= self._mirrors.limit and self._mirrors.make_room(more, self.name)

    @contextmanager
    def adding(self, tidy: Callable[[], None], *, known: bool = True) -> Iterator[None]:
        """Around what adds to it. Other processes wait if it is `known` content, which they may be about to add, too.
        `tidy`: called first where no process adds anything. It removes what was left by those that were ended."""
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
        """Around what makes it; False: another process does, or adds to it. What is not published is removed."""
        os.makedirs(self._mirrors.folder, mode=0o700, exist_ok=True)
        with _locked(self.path + WRITE) as alone:
            try:
                yield alone
            finally:
                if alone:
                    shutil.rmtree(self.path + NEW, ignore_errors=True)

    def begin(self) -> str:
        """A new folder to make it in; to be called in `writing`."""
        path = self.path + NEW
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path, mode=0o700)
        return path

    def publish(self, path: str) -> None:
        """Give what was made in that folder its name; to be called in `writing`."""
        with open(os.path.join(path, URL_FILE), "w", encoding="utf-8") as file:
            file.write(self._url)
        os.rename(path, self.path)
        self.remove_older()

    def remove_older(self) -> None:
        """Remove those of repositories that were at this URL before."""
        self._mirrors.remove_beside(self.name)

    def throw_away(self) -> None:
        """Remove it, whoever uses it: it is damaged."""
        discard(self.path)


def discard(path: str) -> None:
    """Remove a folder, its name at once; nothing is left of it where that can be done."""
    gone = f"{path}{GONE}{os.getpid()}-{time.monotonic_ns()}"
    try:
        os.rename(path, gone)
    except OSError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def size_of(folder: str) -> int:
    """Bytes of all files in a folder and below it."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):  # It was removed meanwhile.
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def _end_use(mirrors: Mirrors, name: str, lock: int) -> None:
    """Let it be removed; it is, where it has become larger than it may be."""
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
    """Lock a file, which is made, and stays; None: another process holds it, and this one is not to `wait`."""
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
    """Hold a lock alone; False: another process holds it."""
    lock = _lock(path, fcntl.LOCK_EX)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)
