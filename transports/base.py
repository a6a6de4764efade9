"""`Transport`: the interface of a file store. Callers check `capabilities` before they use more than plain files."""

from __future__ import annotations

import abc
import contextlib
import copy
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from transports import paths
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NoSuchFile,
    NotADirectory,
    NotSupported,
    TransportError,
)

RECORD = "record"
"""The name of the file inside a folder that `publish_as_folder` created."""


class Capability(enum.Flag):
    """The capabilities of a transport beyond plain files."""

    NONE = 0
    ROUND_TRIPS = enum.auto()
    """Each call waits for another machine, so callers should pass many steps to one `perform`."""
    OBJECTS = enum.auto()
    """Files need no folders, and each step is a request of its own, so callers should not read speculatively."""
    APPEND = enum.auto()
    """`append` works."""
    HANDLES = enum.auto()
    """An open file stays readable when its name is deleted or is given to another file."""


class EntryKind(enum.Enum):
    """The kind of thing that a path names."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Stat:
    """The kind of a path, its size in bytes, and its modification time by the store's clock (seconds since 1970)."""

    kind: EntryKind
    size: int
    modified: float


class ReadFile(abc.ABC):
    """An open file for reading by position. Several threads may use it at once. Dropping the last reference closes it.
    With `Capability.HANDLES` it stays readable after a delete or rename. A read after `close` raises `TransportFailed`.
    """

    @abc.abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, or fewer at the end of the file.

        Raises:
            TransportFailed: the store failed.
        """

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each (offset, size), in that order, in as few round trips as the store allows.

        Raises:
            TransportFailed: the store failed.
        """
        return [self.read_at(offset, size) for offset, size in ranges]

    @property
    def descriptor(self) -> int | None:
        """The file descriptor of an open file on this machine; None if the file is elsewhere."""
        return None

    @abc.abstractmethod
    def size(self) -> int:
        """Return the length in bytes."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the file now, not when its last reference is dropped. Concurrent reads are completed; closing twice is
        harmless."""


class BytesFile(ReadFile):
    """Content in memory as a `ReadFile`. It belongs to no transport and stays readable after `close`."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset`, or fewer at the end of the content."""
        return self._content[offset : offset + size]

    def size(self) -> int:
        """Return the length in bytes."""
        return len(self._content)

    def close(self) -> None:
        """Do nothing, because the last reference frees the content."""


class WriteFile(abc.ABC):
    """A file being written once, front to back. A write or a sync after `close` raises `TransportFailed`."""

    @abc.abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append all of `data`.

        Raises:
            NoSpace: the store is full.
            TransportFailed: the store failed.
        """

    @abc.abstractmethod
    def sync(self) -> None:
        """Return only when every byte written is durable. Never retry a failed sync: the bytes may be lost.

        Raises:
            TransportFailed: durability is unknown.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the file without making it durable; closing twice is harmless."""


@dataclass(eq=False, slots=True)
class Step(abc.ABC):
    """One operation that is passed to `Transport.perform`."""

    path: str

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that the step names."""
        return (self.path,)

    def below(self, folder: str) -> Self:
        """Return a copy of the step whose paths are below `folder`. The copy and the step share one result."""
        made = copy.copy(self)
        made.path = paths.join(folder, self.path)
        return made

    @abc.abstractmethod
    def do(self, transport: Transport) -> None:
        """Perform the step alone, by calling the matching method of `transport`.

        Raises:
            TransportError: as that method.
        """


def published_folder(source: str) -> str:
    """Return the path of the temporary folder that `Transport.publish_as_folder` creates for `source`."""
    return f"{source}.folder"


class Transport(abc.ABC):
    """A tree of files below one root. Paths are relative, `/`-separated and UTF-8; `''` is the root itself.

    The path in an error is relative to the outermost transport, even if a child raises it. An error never contains the
    location of the store. An invalid path is a bug of the caller and raises `ValueError`.

    Order and durability: a name that is made, renamed or deleted is visible at once to every reader. It is durable
    after `sync_directory` of its folder (after a rename: of the new name's folder, then of the old one's).
    Content is durable after `WriteFile.sync`. Nothing else is promised after a crash.
    """

    capabilities: Capability = Capability.NONE

    @abc.abstractmethod
    def child(self, path: str) -> Transport:
        """Return a transport rooted at `path` below this one, without asking the store."""

    @abc.abstractmethod
    def describe(self, path: str = "") -> str:
        """Return the path in a form for messages. It may contain the location of the store, so it must not be sent to
        clients."""

    def real_path(self, path: str = "") -> str:
        """Return the path of `path` with all symbolic links resolved. The file need not exist.

        A path stays inside this transport if its real path is `real_path()` or begins with that and a `/`.
        """
        return self.describe(path)

    def whole(self) -> tuple[Transport, str]:
        """Return a transport for the whole store, over the same connection, and the path from its root to this
        transport's root. Return this transport and `''` if the folders above cannot be named."""
        return self, ""

    @property
    def connections(self) -> int:
        """The number of connections made to the store so far. After a new connection, results of earlier reads may be
        stale, because the store's machine may have lost power."""
        return 0

    def local_folder(self) -> str | None:
        """Return the local folder in which another process finds the same files. Return None if the store has no such
        folder, or if this transport does more than read and write files."""
        return None

    @abc.abstractmethod
    def get(self, path: str) -> bytes:
        """Return the whole content of a file.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """

    @abc.abstractmethod
    def open_read(self, path: str) -> ReadFile:
        """Open a file for reading by position.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """

    @abc.abstractmethod
    def create(self, path: str) -> WriteFile:
        """Create a file and open it for writing.

        Raises:
            FileExists: the name is taken.
            NoSuchFile: its folder is missing.
            PermissionDenied, NoSpace, TransportFailed.
        """

    def append(self, path: str) -> WriteFile:
        """Open an existing file for writing at its end.

        Raises:
            NotSupported: without `Capability.APPEND`.
            NoSuchFile, PermissionDenied, TransportFailed.
        """
        raise NotSupported("append")

    @abc.abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder, replacing a file at `target`. The rename is atomic for every reader.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, which must be free. Of several concurrent callers, one succeeds.

        Raises:
            NotSupported: the store has no hard links; nothing was done.
            FileExists: the target's name is taken. An empty folder there may be replaced.
            NoSuchFile, PermissionDenied, NoSpace, TransportFailed.
        """
        raise NotSupported("link")

    def publish(self, source: str, target: str) -> None:
        """Give a file, whose content is complete and durable, the name `target`, which must be free. Of several
        concurrent callers, on any machines, one succeeds. The name is durable after `sync_directory` of its folder.

        The file is linked to `target` and its old name removed. If the store has no links, it is published as a
        folder that contains the file (`publish_as_folder`). Both forms exclude each other. An empty folder counts as
        a free name, since a power failure may leave one.

        After success `source` is deleted. After an error, `source` and `published_folder(source)` may exist. So each
        attempt must use a new name for its source, and the cleanup of the source's folder must delete both.

        Raises:
            FileExists: the name is taken; over a network file system, perhaps by this same call.
            NoSuchFile: the source is missing, or the target's folder is.
            TransportFailed: the store failed; whether the file was published is unknown.
            PermissionDenied, NoSpace.
        """
        try:
            try:
                self.link(source, target)
            except FileExists as taken:
                try:
                    self.remove_directory(target)
                except TransportError:
                    raise taken from None
                self.link(source, target)
        except NotSupported:
            self.publish_as_folder(source, target)
            return
        with contextlib.suppress(TransportError):  # The file is published even if its old name stays.
            self.delete(source)

    def publish_as_folder(self, source: str, target: str) -> None:
        """Publish without links: rename a folder that contains the file to `target`. No rename of a folder replaces a
        file or a folder that is not empty."""
        paths.check(target)
        self.open_read(source).close()  # Fail if `source` is a folder, which could be renamed as well.
        folder = published_folder(source)
        record = paths.join(folder, RECORD)
        with contextlib.suppress(FileExists):  # A failed attempt may have left it.
            self.make_directory(folder)
        try:
            self.rename(source, record)
            self.sync_directory(folder)
            self.rename(folder, target)
        except TransportError as error:
            with contextlib.suppress(TransportError):
                self.rename(record, source)
            with contextlib.suppress(TransportError):
                self.remove_directory(folder)
            if isinstance(error, DirectoryNotEmpty) or (isinstance(error, NotADirectory) and self.exists(target)):
                raise FileExists(error.path) from None
            raise

    def open_published(self, path: str) -> ReadFile:
        """Open a published file, in either form, for reading by position.

        Raises:
            NoSuchFile: no file is published at the path. PermissionDenied, TransportFailed.
        """
        try:
            return self.open_read(paths.join(path, RECORD))
        except NotADirectory:
            return self.open_read(path)
        except NoSuchFile as error:
            raise NoSuchFile(error.path.removesuffix(RECORD).rstrip("/")) from None

    def get_published(self, path: str) -> bytes:
        """Return the whole content of a published file, in either form.

        Raises:
            NoSuchFile: no file is published at the path. PermissionDenied, TransportFailed.
        """
        with contextlib.closing(self.open_published(path)) as file:
            return file.read_at(0, file.size())

    def withdraw(self, path: str, aside: str) -> None:
        """Remove a published file, in either form. The folder form is first renamed to `aside`, which must be free,
        because an emptied folder would count as a free name. Anything that cannot be removed stays at `aside`.

        Raises:
            NoSuchFile: the path does not exist. PermissionDenied, TransportFailed.
        """
        paths.check(aside)
        if self.stat(path).kind is not EntryKind.DIRECTORY:
            self.delete(path)
            return
        self.rename(path, aside)
        with contextlib.suppress(TransportError):
            self.delete(paths.join(aside, RECORD))
        with contextlib.suppress(TransportError):
            self.remove_directory(aside)

    @abc.abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """

    @abc.abstractmethod
    def make_directory(self, path: str) -> None:
        """Create one folder.

        Raises:
            FileExists, NoSuchFile (its parent), PermissionDenied, NoSpace.
        """

    @abc.abstractmethod
    def remove_directory(self, path: str) -> None:
        """Remove one empty folder.

        Raises:
            DirectoryNotEmpty, NoSuchFile, PermissionDenied.
        """

    @abc.abstractmethod
    def list_directory(self, path: str) -> list[str]:
        """Return the names in a folder, sorted.

        Raises:
            NoSuchFile, NotADirectory, PermissionDenied.
        """

    @abc.abstractmethod
    def stat(self, path: str) -> Stat:
        """Return the `Stat` of a file or folder.

        Raises:
            NoSuchFile, PermissionDenied.
        """

    @abc.abstractmethod
    def sync_directory(self, path: str) -> None:
        """Return only when every name made, renamed or removed in the folder is durable.

        Raises:
            TransportFailed: durability is unknown.
        """

    def perform(self, steps: Sequence[Step]) -> None:
        """Perform the steps in order, in as few round trips as the store allows. Each `Query` then has its result.

        The first step that fails ends the call: the steps before it are done, and no change of a later step is made.
        The store is not contacted if there are no steps.

        Raises:
            TransportError: as the step that failed.
        """
        for step in steps:
            step.do(self)

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder has that name."""
        try:
            self.stat(path)
        except (NoSuchFile, NotADirectory):
            return False
        return True

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file and make its content durable (its name is durable after `sync_directory`).

        Raises:
            FileExists, NoSuchFile, PermissionDenied, NoSpace, TransportFailed.
        """
        file = self.create(path)
        try:
            for chunk in chunks:
                file.write(chunk)
            file.sync()
        finally:
            file.close()
