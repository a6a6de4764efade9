"""Write a tree from a server into a new folder, and nothing outside it.

Each entry is created through the descriptor of its folder, with a single name that must be free. So neither an earlier
link nor a `..` leads out of the folder. Everything is in a temporary folder beside it until the tree is complete.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from smartserver.cli.errors import CommandError
from smartserver.cli.progress import CountLine
from smartserver.client.plain import plain
from smartserver.records.browse import ContentStream, ListedNode, NodeType

OF_TOOLS = (".git", "git~1", ".hg", "hg~1", ".bzr", "bzr~1")
"""The names of folders of version-control tools, and their short names on NTFS."""

_FIRST_OF_TOOLS = frozenset(first for name in OF_TOOLS for first in (name[:1].encode(), name[:1].upper().encode()))

_IGNORED = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)
"""The characters that HFS+ ignores in names, from git's `next_hfs_char` (utf8.c)."""

MAX_LINK = 65_536
"""The most bytes of the target of a link, more than any system accepts."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write_tree(stream: ContentStream, folder: str, single: bytes) -> None:
    """Write the tree into a folder that is empty or missing. `single`: the name to use if the tree is a single file."""
    with _beside(folder) as (made, finish):
        writer = _Writer(stream, made, folder)
        try:
            writer.write(single)
        finally:
            writer.close()
        finish()


@contextmanager
def _beside(folder: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield a temporary folder next to `folder`, and a function that renames it to `folder`. At the end the temporary
    folder is deleted if it was not renamed."""
    place = os.path.abspath(folder)
    above = os.path.dirname(place)
    if os.path.lexists(place) and (os.path.islink(place) or not os.path.isdir(place) or os.listdir(place)):
        raise CommandError(f"{folder} already exists: choose a new folder, or an empty one")
    if not os.path.isdir(above):
        raise CommandError(f"{above} does not exist: create it first")
    made = tempfile.mkdtemp(prefix=".smartserver-", dir=above)
    try:
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, 0o777 & ~mask)
        yield made, lambda: os.rename(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


class _Writer:
    """The writer of entries in the order of the stream, which has a folder before its content."""

    def __init__(self, stream: ContentStream, root: str, called: str) -> None:
        self._stream = stream
        self._called = called
        self._open = [(b"", os.open(root, _FOLDER))]
        """The folders on the path of the last entry, and their descriptors."""
        self._files = self._bytes = 0
        self._line = CountLine("export", sys.stderr.isatty(), done="written")

    def write(self, single: bytes) -> None:
        """Write all entries of the stream. `single`: as in `write_tree`."""
        for entry in self._stream.entries(texts=True):
            path = entry.path
            if not path:
                if entry.type is NodeType.FOLDER:
                    continue  # The root.
                path = single
            folder, _, name = path.rpartition(b"/")
            try:
                self._create(self._descriptor(folder, entry), name, entry)
            except OSError as error:
                raise CommandError(f"{self._place(path)}: {_why(error)}") from error
            self._line(self._bytes, self._files)
        self._line.end()

    def close(self) -> None:
        """Close the descriptors of open folders."""
        while self._open:
            os.close(self._open.pop()[1])

    def _descriptor(self, folder: bytes, entry: ListedNode) -> int:
        while self._open[-1][0] != folder:
            if len(self._open) == 1:
                self._check(entry, *entry.path.split(b"/"))
                raise CommandError(
                    f"{self._place(entry.path)}: the server's answer is damaged: it lacks the folder of this file"
                )
            os.close(self._open.pop()[1])
        return self._open[-1][1]

    def _create(self, folder: int, name: bytes, entry: ListedNode) -> None:
        self._check(entry, name)
        if entry.type in (NodeType.FOLDER, NodeType.SUBMODULE):
            os.mkdir(name, dir_fd=folder)
            if entry.type is NodeType.FOLDER:
                self._open.append((entry.path, os.open(name, _FOLDER, dir_fd=folder)))
            return
        self._files += 1
        self._bytes += entry.size
        if entry.type is NodeType.LINK:
            target = b"".join(self._stream.text()) if entry.size <= MAX_LINK else b"\0"
            if b"\0" in target:
                raise CommandError(f"{self._place(entry.path)}: this link has no valid target; nothing was written")
            os.symlink(target, name, dir_fd=folder)
            return
        mode = 0o777 if entry.type is NodeType.EXECUTABLE else 0o666
        descriptor = os.open(name, _CREATE, mode, dir_fd=folder)
        try:
            for part in self._stream.text():
                while part:
                    part = part[os.write(descriptor, part) :]
        finally:
            os.close(descriptor)

    def _check(self, entry: ListedNode, *names: bytes) -> None:
        """Refuse names that a server must not send."""
        for name in names:
            why = ""
            if name in (b"", b".", b".."):
                why = "a name that leads elsewhere"
            elif b"\0" in name:
                why = "a name that no file can have"
            elif is_of_tool(name):
                why = "a name that a version-control tool takes for its own folder, whose settings run programs"
            if why:
                raise CommandError(f"{self._place(entry.path)}: {why}; nothing was written")

    def _place(self, path: bytes) -> str:
        return plain(f"{self._called}/{path.decode('utf-8', 'backslashreplace')}")


def is_of_tool(name: bytes) -> bool:
    """Tell whether a version-control tool may use a folder of that name, on any file system. Some file systems ignore
    case, dots and blanks at the end, everything after a colon (NTFS), or zero-width characters (HFS+)."""
    if name.isascii() and name[:1] not in _FIRST_OF_TOOLS:
        return False  # Nearly all names end here, in a tenth of the time.
    plain_name = name.decode("utf-8", "replace").translate(_IGNORED).lower().partition(":")[0].rstrip(" .")
    return plain_name in OF_TOOLS


def _why(error: OSError) -> str:
    if error.errno == errno.EEXIST:
        return "it came twice, or differs from another only in what this file system takes for the same"
    return error.strerror or str(error)
