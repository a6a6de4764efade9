"""A file that the server reads again when it has changed. If the new content cannot be used, the old content remains in
force."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Generic, Protocol, TypeVar

log = logging.getLogger("smartserver")

MAX_FILE = 1 << 20
"""The most bytes of a watched file. A rule has about a hundred bytes, and a token three hundred."""

T = TypeVar("T")


class UnusableFile(Exception):
    """The file cannot be used; the text gives the reason. Functions that read or change rules, tokens and hooks may
    raise it."""


class UnreadableFile(UnusableFile):
    """A file that the system does not allow to be read."""


class WatchedSource(Protocol):
    """The source of a watched file. Its `str` is the file's name in messages."""

    def signature(self) -> tuple[int, ...]:
        """Return a value that changes with the file's content; empty if the file does not exist.

        Raises:
            TransportFailed: it is unknown whether the file has changed, so the content must not be used.
        """

    def read(self) -> bytes | None:
        """Return the content; None if the file does not exist.

        Raises:
            UnreadableFile: the file cannot be read.
        """


class WatchedFile(Generic[T]):
    """The content of a file, read again when the file has changed. Any thread may use it."""

    what = ""
    """A plural noun for the entries of the content, for the log."""

    def __init__(self, source: Path | WatchedSource) -> None:
        """Read the file.

        Raises:
            TransportFailed: as `WatchedSource.signature`.
        """
        self.source = _FileOnDisk(source) if isinstance(source, Path) else source
        self._guard = threading.Lock()
        self._seen = self.source.signature()
        self.was_read = False
        """True once a valid file was read."""
        self._content = self._read()

    def parse(self, content: bytes) -> T:
        """Return the parsed content of the file."""
        raise NotImplementedError

    def absent(self) -> T:
        """Return the content to use if the file is missing, or raise UnusableFile."""
        raise UnusableFile("it cannot be read: No such file or directory")

    def count(self, content: T) -> int:
        """Return the number of entries, for the log."""
        raise NotImplementedError

    @property
    def content(self) -> T:
        """The current content of the file; the previous one if it cannot be used.

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
                    if not isinstance(error, UnreadableFile):  # It may become readable.
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
    """A file on this machine."""

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
