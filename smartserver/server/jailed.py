"""`JailedTransport`: the part of the served folder that a client of the file-level verbs may see and change.

Every path is checked by `jail.file`. Then links in it are followed, and the result must lie below the served folder. A
client cannot make links. A user of the server's machine can, and could add one between this check and the call itself
(doc/shortcomings.md).

Only repositories of a format that this release knows are changed. A client may publish the file `format` only in a
folder that has nothing but a repository's files. In any other folder, that file would make clients and servers take the
folder for a repository. A client may not make files that send servers and commands to another place, such as a database
or a bucket.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from smartserver.errors import CorruptFile, InvalidPath, Unsupported, place
from smartserver.server import jail
from smartserver.store.format import CLUSTER, FORMAT, NAMES, parse_format
from smartserver.store.preview_folder import PREVIEW
from transports.base import EntryKind, ReadFile, Stat, Transport, WriteFile
from transports.errors import NoSuchFile, NotADirectory, PermissionDenied, TransportError

T = TypeVar("T")

FORMAT_BYTES = 512
"""The most bytes that are read of a file `format`. A repository's `format` has at most 256 bytes, so a longer file is
something else."""

LEADING_ELSEWHERE = frozenset({CLUSTER, PREVIEW})
"""Names of files that refer to another place for the logs or packs of a folder."""

MAX_MOVED = 10_000
"""The most files and folders in a folder that is renamed. Each is checked in 30 µs, all in a third of a second."""


class JailedTransport(Transport):
    """The tree below `base` in the served folder `root`; the paths in errors are relative to `base`."""

    def __init__(self, root: Transport, base: str) -> None:
        """Raise InvalidPath if `base` cannot be a path."""
        self._root = root
        self._base = jail.file(base)
        self._real_root = root.real_path().rstrip("/") + "/"
        self.capabilities = root.capabilities

    def child(self, path: str) -> JailedTransport:
        return JailedTransport(self._root, self._full(path))

    def describe(self, path: str = "") -> str:
        return self._full(path)

    # -- reads

    def get(self, path: str) -> bytes:
        return self._call(self._root.get, self._seen, path)

    def open_read(self, path: str) -> ReadFile:
        return self._call(self._root.open_read, self._seen, path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a folder, without those that are not allowed in paths."""
        with _named(path):
            return [name for name in self._root.list_directory(self._seen(path)) if jail.is_file_name(name)]

    def stat(self, path: str) -> Stat:
        return self._call(self._root.stat, self._seen, path)

    def sync_directory(self, path: str) -> None:
        self._call(self._root.sync_directory, self._seen, path)

    # -- changes

    def create(self, path: str) -> WriteFile:
        return self._call(self._root.create, self._written, path)

    def append(self, path: str) -> WriteFile:
        return self._call(self._root.append, self._written, path)

    def rename(self, source: str, target: str) -> None:
        self._move(self._root.rename, source, target)

    def link(self, source: str, target: str) -> None:
        self._move(self._root.link, source, target)

    def withdraw(self, path: str, aside: str) -> None:
        with _named(aside):
            self._changed(aside)
        super().withdraw(path, aside)

    def _move(self, move: Callable[[str, str], None], source: str, target: str) -> None:
        with _named(source):
            old = self._changed(source)
            self._check_moved(old)
        with _named(target):
            new = self._changed(target)
            self._check_name(target, new, is_replaced=move == self._root.rename and self._is_file(old))
        try:
            move(old, new)
        except NoSuchFile as error:
            raise NoSuchFile(source if error.path == old else target) from None
        except TransportError:
            with _named(target):
                raise

    def delete(self, path: str) -> None:
        self._call(self._root.delete, self._changed, path)

    def make_directory(self, path: str) -> None:
        self._call(self._root.make_directory, self._written, path)

    def remove_directory(self, path: str) -> None:
        self._call(self._root.remove_directory, self._changed, path)

    # -- the jail

    def _call(self, call: Callable[[str], T], place: Callable[[str], str], path: str) -> T:
        with _named(path):
            return call(place(path))

    def _full(self, path: str) -> str:
        return "/".join(filter(None, (self._base, jail.file(path))))

    def _seen(self, path: str) -> str:
        """Return the place to which a path points, relative to the served folder."""
        try:
            return self._real(self._full(path))
        except InvalidPath:
            if jail.is_hidden(path):
                raise NoSuchFile(path) from None
            raise

    def _real(self, full: str) -> str:
        real = self._root.real_path(full)
        if f"{real}/".startswith(self._real_root):
            with contextlib.suppress(UnicodeEncodeError):  # A link to a name that is not UTF-8.
                real.encode()
                return real[len(self._real_root) :]
        raise InvalidPath(full, "it leads out of the served folder")

    def _changed(self, path: str) -> str:
        """Return the place of a name that may be changed, relative to the served folder. A link is followed only if it
        is not the last part."""
        full = self._full(path)
        if not full:
            raise PermissionDenied(path, "the served folder itself cannot be changed")
        folder, _, name = full.rpartition("/")
        found = f"{self._real(folder)}/{name}".lstrip("/")
        for above in {*jail.prefixes(found), *jail.prefixes(self._real(full))}:
            self._check_repository(above)
        return found

    def _written(self, path: str) -> str:
        """Return the same as `_changed`, for a name that is created or written to."""
        found = self._changed(path)
        for real in (found, self._real(self._full(path))):
            self._check_name(path, real, is_replaced=True)
        return found

    def _check_name(self, path: str, real: str, *, is_replaced: bool) -> None:
        """Check that a file or folder may have a name. `is_replaced`: true if it may replace a file of that name."""
        folder, _, name = real.rpartition("/")
        if name in LEADING_ELSEWHERE:
            raise PermissionDenied(path, f"{name!r} can be created only on the server's machine")
        if name == FORMAT and (is_replaced or not NAMES.issuperset(self._root.list_directory(folder))):
            raise PermissionDenied(path, f"{FORMAT!r} can be created only with a new repository")

    def _is_file(self, real: str) -> bool:
        return self._root.stat(real).kind is not EntryKind.DIRECTORY

    def _check_repository(self, folder: str) -> None:
        """Check that file-level calls may change the content of a folder."""
        name = f"{folder}/{FORMAT}".lstrip("/")
        try:
            with contextlib.closing(self._root.open_published(name)) as file:
                parse_format(file.read_at(0, FORMAT_BYTES))
        except (NoSuchFile, NotADirectory):
            return
        except (CorruptFile, Unsupported) as error:
            raise PermissionDenied(name, f"{place(folder)} may be a repository of another release ({error})") from None

    def _check_moved(self, source: str) -> None:
        """Check that a file or folder may be renamed. It must not be or contain a link, which could point elsewhere
        under the new name, nor a repository of another release at any depth."""
        left, looked = [source], 0
        while left:
            each = left.pop()
            looked += 1
            if looked + len(left) > MAX_MOVED:
                raise PermissionDenied(source, f"a folder of more than {MAX_MOVED} files and folders cannot be renamed")
            if self._root.real_path(each) != self._real_root + each:
                what = "a link" if each == source else f"a folder with a link in it ({each!r})"
                raise PermissionDenied(source, f"{what} cannot be renamed: the link could then lead elsewhere")
            if self._root.stat(each).kind is EntryKind.DIRECTORY:
                self._check_repository(each)
                left += [f"{each}/{name}" for name in self._root.list_directory(each)]


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Replace the path in errors by the path of the call, because links may lead to another place."""
    try:
        yield
    except (InvalidPath, TransportError) as error:
        if hasattr(error, "path"):
            error.path = path
        raise
