"""A file that the server reads again whenever it has changed. One that cannot be used leaves everything as it was."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Generic, TypeVar

log = logging.getLogger("smartserver")

MAX_FILE = 1 << 20
"""Bytes of such a file; a rule has about a hundred, and a token three hundred."""

T = TypeVar("T")


class UnusableFile(Exception):
    """A file that cannot be used, and why."""


class UnreadableFile(UnusableFile):
    """A file that the system does not let be read."""


class WatchedFile(Generic[T]):
    """The content of a file. Any thread may ask."""

    what = ""
    """What the file has, in the words of the log."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            UnusableFile: it cannot be read, or is not valid.
        """
        self.path = path
        self._guard = threading.Lock()
        self._seen = _signature(path)
        self.was_read = False
        """Whether there was a valid file once."""
        self._content = self._read()

    def parse(self, content: bytes) -> T:
        """Make of the bytes what the file says.

        Raises:
            UnusableFile: it is not valid.
        """
        raise NotImplementedError

    def absent(self) -> T:
        """Say what a file means that does not exist.

        Raises:
            UnusableFile: it must exist.
        """
        raise UnusableFile("it cannot be read: No such file or directory")

    def count(self, content: T) -> int:
        """Count what the file has, for the log."""
        raise NotImplementedError

    @property
    def content(self) -> T:
        """What the file says now; what it said before if it cannot be used."""
        seen = _signature(self.path)
        if seen == self._seen:
            return self._content
        with self._guard:
            if seen != self._seen:
                try:
                    self._content = self._read()
                    log.warning("%s: %d %s are in force", self.path, self.count(self._content), self.what)
                    self._seen = seen
                except UnusableFile as wrong:
                    log.warning("%s is not used, the %s stay as they were: %s", self.path, self.what, wrong)
                    if not isinstance(wrong, UnreadableFile):  # That may pass.
                        self._seen = seen
            return self._content

    def _read(self) -> T:
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return self.absent()
        except OSError as wrong:
            raise UnreadableFile(f"it cannot be read: {wrong.strerror}") from None
        if len(content) > MAX_FILE:
            raise UnusableFile(f"it has more than {MAX_FILE} bytes")
        found = self.parse(content)
        self.was_read = True
        return found


def _signature(path: Path) -> tuple[int, ...]:
    """What changes with a file's content; empty if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns
