"""Locks the files of a mirror on the disk, checks them for damage, and removes those that killed processes left.

Breezy names a pack by the MD5 of its content and writes the sizes of indexes into `pack-names`. `check_files` checks
sizes and the ends of packs whenever a mirror is opened; `check_packs` reads everything, and runs after a command has
failed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from breezy import errors
from breezy.controldir import ControlDir
from breezy.transport.local import LocalTransport

from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.repository import BrzRepository

NO_ROOM: Final = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST,
)  # fmt: skip
"""Errors of writing that do not mean that the disk or a file is damaged."""

LONGEST: Final = 200
"""The most characters of an error from Breezy that a message shows."""


class Damaged(Exception):
    """A file of a mirror is missing, or does not have the content that Breezy wrote."""


class FileLock:
    """A lock on a mirror that the operating system releases when its process ends. Breezy uses it like one of its own
    locks."""

    def __init__(self, transport: Any, name: str, file_modebits: object, dir_modebits: object) -> None:
        self._path: str | None = None
        self._file: int | None = None
        if isinstance(transport, LocalTransport):
            self._path = transport.local_abspath(f"{name}.names")

    def create(self, mode: object = None) -> None:
        """Do nothing, because the first lock creates the file."""

    def lock_write(self, token: object = None) -> None:
        """Wait until no other process holds the lock."""
        if self._path is not None:
            file = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            self._file = file

    def lock_read(self) -> None:
        """Do nothing, because readers need no lock."""

    def unlock(self) -> None:
        """Release the lock."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def validate_token(self, token: object) -> None:
        """Accept any token: this lock has none."""

    def peek(self) -> None:
        """Return None, because the lock does not record its holder."""

    break_lock = leave_in_place = dont_leave_in_place = create


@contextmanager
def decoding() -> Iterator[None]:
    """Raise `Damaged` for the errors that Breezy raises if a file has other content than it wrote.

    The block contains only Breezy's calls. An error that is always a program's mistake (`TypeError`, `AttributeError`,
    `AssertionError`, a missing lock) passes unchanged.
    """
    try:
        yield
    except (errors.NotWriteLocked, errors.ObjectNotLocked):
        raise
    except (errors.BzrError, VcsError, OSError, zlib.error, struct.error, ValueError, LookupError) as error:
        raise Damaged(short(str(error) or type(error).__name__)) from error


def check_files(path: str) -> None:
    """Check that the files of a mirror exist, have the size that `pack-names` says, and are complete.

    Raises:
        Damaged: a file is missing or incomplete.
        OSError: the folder cannot be read.
    """
    repository = os.path.join(path, ".bzr", "repository")
    for name in ("format", "pack-names"):
        if not os.path.isfile(os.path.join(repository, name)):
            raise Damaged(f"{name} is not a file")
    with decoding():
        disk = ControlDir.open(path).open_repository()
        BrzRepository(disk).check_format()
        with disk.lock_read():
            disk._pack_collection.ensure_loaded()
            names = dict(disk._pack_collection._names)
    suffixes = ("rix", "iix", "tix", "six", "cix")
    for name, sizes in names.items():
        for suffix, size in zip(suffixes, sizes, strict=False):
            _check_size(os.path.join(repository, "indices", f"{name}.{suffix}"), size)
        _check_size(os.path.join(repository, "packs", f"{name}.pack"), None)


def _check_size(path: str, size: int | None) -> None:
    """Check the size of an index, or with None that a pack ends as Breezy's containers do."""
    try:
        with open(path, "rb") as file:
            found = file.seek(0, os.SEEK_END)
            if size is None and found:
                file.seek(-1, os.SEEK_END)
                if file.read(1) == b"E":  # The end of a container of Breezy's.
                    return
    except OSError as error:
        raise Damaged(f"{os.path.basename(path)}: {error.strerror}") from error
    if size is None or found != size:
        raise Damaged(f"{os.path.basename(path)} has {found} bytes" + ("" if size is None else f", expected {size}"))


def check_packs(path: str) -> None:
    """Check that the name of each pack is the MD5 of its content.

    Raises:
        Damaged: the name of a pack is wrong.
    """
    packs = os.path.join(path, ".bzr", "repository", "packs")
    for name in os.listdir(packs):
        with open(os.path.join(packs, name), "rb") as file:
            if hashlib.file_digest(file, "md5").hexdigest() != name.removesuffix(".pack"):
                raise Damaged(f"the content of {name} does not match the checksum in its name")


def tidy(path: str) -> None:
    """Remove the files of processes that were killed while they wrote. The caller must hold the lock for writing."""
    uploads = os.path.join(path, ".bzr", "repository", "upload")
    with contextlib.suppress(NotADirectoryError):
        for name in os.listdir(uploads):
            os.unlink(os.path.join(uploads, name))


def size_of_packs(repository: Any) -> int:
    """Return the total size of a local repository's packs, in bytes."""
    transport = repository._pack_collection._pack_transport
    return sum(transport.stat(name).st_size for name in transport.list_dir("."))


def is_no_room(error: BaseException) -> bool:
    """Tell whether an error means that the disk cannot be written to, or is full."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return True
        if isinstance(cause, errors.PermissionDenied):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def short(why: str) -> str:
    """Return the beginning of an error's text, on one line."""
    return " ".join(why.split())[:LONGEST]
