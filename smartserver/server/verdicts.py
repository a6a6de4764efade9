"""The verdicts of hooks about requests, in a folder of the server's account on this machine.

A client repeats a request with the same id if its connection was lost. The repetition may reach another worker, or by
ssh another process. So each request that hooks judge has a file, which is locked while they run. A repetition waits for
the lock, and takes the verdict. A verdict holds only for the same user, changes and content, and is kept for a day.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

KEPT: Final = 24 * 3600
"""Seconds for which a verdict is kept: as long as the log keeps requests."""

CLEAN_UP: Final = 3600.0
"""Seconds between two searches for old verdicts."""


class Verdict(NamedTuple):
    """The verdict of hooks about a request. `digest`: the digest of everything that the hooks judged. `hook`: the name
    of the hook that refuses the request, and `why` its reason; both are empty if no hook refuses it."""

    digest: bytes
    hook: str = ""
    why: str = ""


_DECODER = msgspec.msgpack.Decoder(Verdict)


class Verdicts:
    """The verdicts in a folder. Any thread may use them."""

    def __init__(self, folder: Path) -> None:
        """`folder`: a folder that all processes of this account share. Other accounts must not be able to write to its
        parent."""
        self._folder = folder
        self._cleaned: float | None = None
        self._guard = threading.Lock()

    def get(self, request: bytes, digest: bytes, judge: Callable[[], Verdict]) -> Verdict:
        """Return the verdict about a request. If it was judged before, return that verdict. Otherwise call `judge` and
        store its result.

        Raises:
            OSError: the folder cannot be used.
        """
        folder = self._folder
        _make(folder)
        self._clean_up(folder)
        with _locked(folder / request.hex()) as file:
            with contextlib.suppress(msgspec.DecodeError):  # The file is new, or its writer was killed.
                found = _DECODER.decode(_read(file))
                if found.digest == digest:
                    return found
            made = judge()
            os.ftruncate(file, 0)
            os.pwrite(file, msgspec.msgpack.encode(made), 0)
            return made

    def _clean_up(self, folder: Path) -> None:
        with self._guard:
            now = time.monotonic()
            if self._cleaned is not None and now - self._cleaned < CLEAN_UP:
                return
            self._cleaned = now
        for file in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > KEPT:
                    file.unlink()


def _make(folder: Path) -> None:
    """Create the folder of verdicts. Raise PermissionError unless only this account can access it, because other
    accounts could forge verdicts."""
    with contextlib.suppress(FileExistsError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(0, f"{folder} must be a folder that only this account owns and can open")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _read(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)
