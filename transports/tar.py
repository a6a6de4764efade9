"""`TarTransport`: the files in tar archives, read in place. If several archives have a path, the last one is used."""

from __future__ import annotations

import copy
import os
import tarfile
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

from transports import paths
from transports.base import Capability, EntryKind, ReadFile, Stat, Transport
from transports.errors import NoSuchFile, NotADirectory, NotSupported, TransportFailed

MAGIC: Final = b"ustar"
"""The bytes that every header has at `MAGIC_AT`."""
MAGIC_AT: Final = 257
END: Final = bytes(2 * tarfile.BLOCKSIZE)
"""The bytes at the end of an archive."""


class DamagedArchive(Exception):
    """A file is not a tar archive, or is incomplete."""

    def __init__(self, name: str, at: int, why: str) -> None:
        super().__init__(f"{name} is damaged at byte {at}: {why}")


class _Member(ReadFile):
    """A file in an archive. The archive stays open as long as this object exists."""

    def __init__(self, archive: BinaryIO, begin: int, size: int, path: str) -> None:
        self._archive: BinaryIO | None = archive
        self._begin, self._size, self._path = begin, size, path

    def read_at(self, offset: int, size: int) -> bytes:
        if self._archive is None:
            raise TransportFailed(self._path, "the file is closed")
        size = min(size, self._size - offset)
        return os.pread(self._archive.fileno(), size, self._begin + offset) if size > 0 else b""

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._archive = None


class TarTransport(Transport):
    """The read-only files of tar archives. A tar archive has checksums of its headers alone, so damaged content is
    found only if the content has checks of its own."""

    capabilities = Capability.HANDLES

    def __init__(self, archives: Mapping[str, BinaryIO]) -> None:
        """`archives`: open local files, by the names that the user gave.

        Raises:
            DamagedArchive: a file is not a tar archive, or is incomplete.
        """
        self._files: dict[str, tuple[BinaryIO, tarfile.TarInfo]] = {}
        self._folders = {""}
        self._names, self._place = ", ".join(archives), ""
        for name, archive in archives.items():
            for member in _members(name, archive):
                path = "/".join(part for part in member.name.split("/") if part not in ("", ".", ".."))
                if member.isreg():
                    self._files[path] = archive, member
                    path = path.rpartition("/")[0]
                while path not in self._folders:
                    self._folders.add(path)
                    path = path.rpartition("/")[0]

    def child(self, path: str) -> TarTransport:
        made = copy.copy(self)
        made._place = paths.join(self._place, path)
        return made

    def describe(self, path: str = "") -> str:
        return f"{self._names}/{paths.join(self._place, path)}".rstrip("/")

    def get(self, path: str) -> bytes:
        file = self.open_read(path)
        return file.read_at(0, file.size())

    def open_read(self, path: str) -> ReadFile:
        archive, member = self._file(paths.join(self._place, path))
        return _Member(archive, member.offset_data, member.size, path)

    def list_directory(self, path: str) -> list[str]:
        folder = paths.join(self._place, path)
        if folder not in self._folders:
            self._file(folder)
            raise NotADirectory(folder)
        names = (each.rpartition("/") for each in [*self._files, *self._folders] if each)
        return sorted(name for above, _, name in names if above == folder)

    def stat(self, path: str) -> Stat:
        whole = paths.join(self._place, path)
        if whole in self._folders:
            return Stat(EntryKind.DIRECTORY, 0, 0.0)
        _, member = self._file(whole)
        return Stat(EntryKind.FILE, member.size, float(member.mtime))

    def _file(self, path: str) -> tuple[BinaryIO, tarfile.TarInfo]:
        found = self._files.get(path)
        if found is not None:
            return found
        if path in self._folders:
            raise TransportFailed(path, "not a plain file")
        above = path.rpartition("/")[0]
        while above:
            if above in self._files:
                raise NotADirectory(path)
            above = above.rpartition("/")[0]
        raise NoSuchFile(path)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotSupported("way to change a file")

    create = rename = delete = make_directory = remove_directory = sync_directory = _refuse


def is_archive(file: BinaryIO) -> bool:
    """Tell whether a file begins like a tar archive. The rest of the file is not read."""
    return os.pread(file.fileno(), len(MAGIC), MAGIC_AT) == MAGIC


def _members(name: str, archive: BinaryIO) -> list[tarfile.TarInfo]:
    """Return all members of an archive.

    Raises:
        DamagedArchive: the file is not a tar archive, or is incomplete.
    """
    archive.seek(0)
    try:
        with tarfile.open(fileobj=archive, mode="r:") as opened:
            members = opened.getmembers()
            at = opened.offset
    except tarfile.TarError as error:
        at = min(archive.tell(), archive.seek(0, os.SEEK_END))
        raise DamagedArchive(name, at, str(error)) from error
    rest = os.pread(archive.fileno(), len(END), at)
    if rest != END:
        why = "it ends here, before its end" if len(rest) < len(END) else "neither a file nor the end"
        raise DamagedArchive(name, at + len(rest) if len(rest) < len(END) else at, why)
    return members
