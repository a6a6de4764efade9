"""A file that the server reads again whenever it has changed. One that cannot be used leaves everything as it was."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Generic, Protocol, TypeVar

log = logging.getLogger("smartserver")

MAX_FILE = 1 << 20
"""Bytes of such a file; a rule has about a hundred, and a token three hundred."""

T = TypeVar("T")


class UnusableFile(Exception):
    """A file that cannot be used, and why. What reads or changes rules, tokens and hooks may raise it."""


class UnreadableFile(UnusableFile):
    """A file that the system does not let be read."""


class WatchedSource(Protocol):
    """The place of such a file; as text, its name in messages."""

    def signature(self) -> tuple[int, ...]:
        """A value that changes with the file's content; empty if it does not exist.

        Raises:
            TransportFailed: it cannot be told whether the file is still as it was, and it must not be used.
        """

    def read(self) -> bytes | None:
        """The content; None if it does not exist.

        Raises:
            UnreadableFile: it cannot be read.
        """


class WatchedFile(Generic[T]):
    """The content of a file. Any thread may ask."""

    what = ""
    """The content of the file, in the words of the log."""

    def __init__(self, source: Path | WatchedSource) -> None:
        """Read it.

        Raises:
            TransportFailed: as `WatchedSource.signature`.
        """
        self.source = _FileOnDisk(source) if isinstance(source, Path) else source
        self._guard = threading.Lock()
        self._seen = self.source.signature()
        self.was_read = False
        """True once there was a valid file."""
        self._content = self._read()

    def parse(self, content: bytes) -> T:
        """Make of the bytes what the file says."""
        raise NotImplementedError

    def absent(self) -> T:
        """Say what a file means that does not exist."""
        raise UnusableFile("it cannot be read: No such file or directory")

    def count(self, content: T) -> int:
        """Count what the file has, for the log."""
        raise NotImplementedError

    @property
    def content(self) -> T:
        """The content of the file now; the one before if it cannot be used.

        Raises:
            TransportFailed: as `WatchedSource.signature`.
        """
        seen = self.source.signature()
        if seen == self._seen:
            return self._content
        with self._guard:
            if seen != self._seen:
                try:
                    self._content = self._read()
                    log.warning("%s: %d %s are in force", self.source, self.count(self._content), self.what)
                    self._seen = seen
                except UnusableFile as error:
                    log.warning("%s is not used, the %s stay as they were: %s", self.source, self.what, error)
                    if not isinstance(error, UnreadableFile):  # That may pass.
                        self._seen = seen
            return self._content

    def _read(self) -> T:
        content = self.source.read()
        if content is None:
            return self.absent()
        if len(content) > MAX_FILE:
            raise UnusableFile(f"it has more than {MAX_FILE} bytes")
        found = self.parse(content)
        self.was_read = True
        return found


class _FileOnDisk:
    """A file of this machine. One that cannot be looked at is as it was."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def signature(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                return file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableFile(f"it cannot be read: {error.strerror}") from None
