"""Replaces a file in one step: readers see the old content or the new one, and a failure leaves the old one.

The new content is written to a temporary file beside the target, where a rename replaces the target at once. The
temporary file is removed on failure; only a killed process or a power cut leaves it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


@contextmanager
def new_file(path: str, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces the file at the path when the block ends without an error.

    A symbolic link is followed. A device or a pipe is written directly. `durable`: True to sync the new file, so that
    it survives a power cut.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            yield file
        return
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    check_folder(target)
    part = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    try:
        with open(part, "xb") as file:
            yield file
            if durable:
                sync_file(file)
        os.replace(part, target)
        if durable:
            sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def check_folder(path: str) -> None:
    """Check that the folder of a file exists."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder: create it first", folder)


def sync_file(file: BinaryIO) -> None:
    """Flush a file, and sync it if it is on a disk, so that a full disk is noticed now."""
    file.flush()
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
