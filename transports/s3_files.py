"""Files of the S3 transport: files that this process holds, and open files."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import IO, Any, cast

from transports.base import EntryKind, ReadFile, Stat, WriteFile
from transports.errors import TransportFailed
from transports.local import translate

IN_MEMORY = 1 << 20
"""The most bytes of a file that this process keeps in memory. A larger file is stored in a temporary file."""

FOLDER = Stat(EntryKind.DIRECTORY, 0, 0.0)
"""The stat of every folder, because S3 stores no time of change for folders."""

RangeReader = Callable[[Sequence[tuple[int, int]]], list[bytes]]


class SpooledFile:
    """The content of a file that this process holds, in memory or in a temporary file."""

    def __init__(self) -> None:
        self.made = time.monotonic()
        self.size = 0
        self._file = cast("IO[bytes]", tempfile.SpooledTemporaryFile(IN_MEMORY))  # noqa: SIM115 - open while it is used
        weakref.finalize(self, self._file.close)
        self._guard = threading.Lock()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data`."""
        with self._guard:
            try:
                self._file.seek(0, os.SEEK_END)
                self._file.write(data)
            except OSError as error:
                raise translate(error, tempfile.gettempdir()) from error
            self.size = self._file.tell()

    def read_at(self, offset: int, size: int) -> bytes:
        with self._guard:
            self._file.seek(offset)
            return self._file.read(size)

    def content(self) -> bytes:
        return self.read_at(0, self.size)

    def send(self, put: Callable[[IO[bytes]], object]) -> None:
        """Pass the file, positioned at its beginning, to `put`, which reads the whole file."""
        with self._guard:
            self._file.seek(0)
            put(self._file)


class BucketFile(ReadFile):
    """An open file of the bucket or of this process. `size` returns its length, `read` the bytes of some ranges."""

    def __init__(self, size: Callable[[], int], read: RangeReader, path: str) -> None:
        self._size = size
        self._read: RangeReader | None = read
        self._path = path

    def read_at(self, offset: int, size: int) -> bytes:
        return self.read_ranges([(offset, size)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if self._read is None:
            raise TransportFailed(self._path, "the file is closed")
        return self._read(ranges)

    def size(self) -> int:
        return self._size()

    def close(self) -> None:
        self._read = None


class NewFile(WriteFile):
    """A new file that is being written. `send` uploads it, at the first sync or at `close`; None if this process holds
    the file."""

    def __init__(self, spooled: SpooledFile, path: str, send: Callable[[SpooledFile], None] | None) -> None:
        self._spooled: SpooledFile | None = spooled
        self._path = path
        self._send = send

    def _open(self) -> SpooledFile:
        if self._spooled is None:
            raise TransportFailed(self._path, "the file is closed, or was uploaded")
        return self._spooled

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._open().write(data)

    def sync(self) -> None:
        spooled = self._open()
        if self._send is not None:
            self._spooled = None
            self._send(spooled)

    def close(self) -> None:
        if self._spooled is not None:
            self.sync()
            self._spooled = None


def stat_of(found: Any) -> Stat:
    """Return the stat of a file from the metadata that the library returned."""
    return Stat(EntryKind.FILE, found["size"], found["last_modified"].timestamp())
