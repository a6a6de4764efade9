"""`Transport`: what a file store promises. Capabilities are asked, never guessed."""

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
"""The name of the file in a folder that was published."""


class Capability(enum.Flag):
    """The capabilities of a transport beyond plain files."""

    NONE = 0
    ROUND_TRIPS = enum.auto()
    """Each call waits for another machine: callers perform their steps together."""
    OBJECTS = enum.auto()
    """Files need no folders, and each step is a request of its own: callers do not guess what may be there."""
    APPEND = enum.auto()
    """`append` works."""
    HANDLES = enum.auto()
    """A file that is open stays readable when its name is deleted or given to another."""


class EntryKind(enum.Enum):
    """The kind of thing that a path names."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Stat:
    """Size in bytes and time of last change in seconds by the store's own clock."""

    kind: EntryKind
    size: int
    modified: float


class ReadFile(abc.ABC):
    """An open file for reading by position; usable from several threads at once, closed with its last reference.
    With `Capability.HANDLES` it stays readable after a delete or rename. A read after `close` raises `TransportFailed`.
    """

    @abc.abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes at `offset`; fewer only at the end of the file.

        Raises:
            TransportFailed: the store failed.
        """

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read each (offset, size) as `read_at` does, in that order, in as few trips as the store allows.

        Raises:
            TransportFailed: the store failed.
        """
        return [self.read_at(offset, size) for offset, size in ranges]

    @property
    def descriptor(self) -> int | None:
        """That of a file of this machine, as long as this is open; None of any other."""
        return None

    @abc.abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the file early, once the reads under way are done; closing twice is harmless."""


class BytesFile(ReadFile):
    """Content in memory, for what reads files of transports; no transport's own: it stays readable after `close`."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read_at(self, offset: int, size: int) -> bytes:
        """Return bytes as any file does."""
        return self._content[offset : offset + size]

    def size(self) -> int:
        """Length in bytes."""
        return len(self._content)

    def close(self) -> None:
        """Do nothing: the last reference frees the content."""


class WriteFile(abc.ABC):
    """A file being written once, front to back. A write or a sync after `close` raises `TransportFailed`."""

    @abc.abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data` whole.

        Raises:
            NoSpace: the store is full.
            TransportFailed: the store failed.
        """

    @abc.abstractmethod
    def sync(self) -> None:
        """Return only when every byte written is durable. A failed sync is never tried again: the bytes may be gone.

        Raises:
            TransportFailed: durability is unknown.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close without a promise of durability; closing twice is harmless."""


@dataclass(eq=False, slots=True)
class Step(abc.ABC):
    """One thing to do."""

    path: str

    @property
    def paths(self) -> tuple[str, ...]:
        """All that it names."""
        return (self.path,)

    def below(self, folder: str) -> Self:
        """The same step, as a transport names it that `folder` is below; both hold what comes of either."""
        made = copy.copy(self)
        made.path = paths.join(folder, self.path)
        return made

    @abc.abstractmethod
    def do(self, transport: Transport) -> None:
        """Perform it by the calls of one file.

        Raises:
            TransportError: as that call.
        """


def published_folder(source: str) -> str:
    """The path at which `Transport.publish` makes a folder of `source`, if it must."""
    return f"{source}.folder"


class Transport(abc.ABC):
    """A tree of files below one place. Paths are relative, `/`-separated, UTF-8, `''` is the place itself.

    An error names the path from the outermost transport, so that a child's errors say which file it was, and never
    where on the machine. A path that cannot be one is a bug of the caller: `ValueError`.

    Order and durability: a name made, renamed or deleted is visible at once to every reader and durable after
    `sync_directory` of its folder (a rename between two folders: of the new name's folder, then of the old one's);
    content is durable after `WriteFile.sync`. Nothing else is promised after a crash.
    """

    capabilities: Capability = Capability.NONE

    @abc.abstractmethod
    def child(self, path: str) -> Transport:
        """A transport rooted at `path` below this one; nothing is looked up."""

    @abc.abstractmethod
    def describe(self, path: str = "") -> str:
        """The path as a person would name it, for messages on this machine only: it may say where the store is."""

    def real_path(self, path: str = "") -> str:
        """The place to which `path` leads when every link on the way is followed; it need not exist.

        What stays inside this place is `real_path()` itself or begins with it and a `/`.
        """
        return self.describe(path)

    def whole(self) -> tuple[Transport, str]:
        """All of the store that this is a part of, over the same connection, and the path from there to here; itself
        where nothing can be told of what lies above."""
        return self, ""

    @property
    def connections(self) -> int:
        """The number of connections made to it so far; it counts no others. After another one was made, what was read
        before may not be there any more: the machine behind it may have lost power."""
        return 0

    def local_folder(self) -> str | None:
        """The folder of this machine in which another process finds the same files; None where there is none, or where
        this does more than to read them."""
        return None

    @abc.abstractmethod
    def get(self, path: str) -> bytes:
        """The whole content.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """

    @abc.abstractmethod
    def open_read(self, path: str) -> ReadFile:
        """Open for reading by position.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """

    @abc.abstractmethod
    def create(self, path: str) -> WriteFile:
        """A new file.

        Raises:
            FileExists: the name is taken.
            NoSuchFile: its folder is not there.
            PermissionDenied, NoSpace, TransportFailed.
        """

    def append(self, path: str) -> WriteFile:
        """A file that is there, to be written on from its end; what is in it stays.

        Raises:
            NotSupported: without `Capability.APPEND`.
            NoSuchFile, PermissionDenied, TransportFailed.
        """
        raise NotSupported("append")

    @abc.abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name, replacing a file that has it: atomic for every reader.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, which nothing has: of any number of callers one succeeds.

        Raises:
            NotSupported: the store has no hard links; nothing was done.
            FileExists: the target's name is taken. An empty folder that has it may be replaced.
            NoSuchFile, PermissionDenied, NoSpace, TransportFailed.
        """
        raise NotSupported("link")

    def publish(self, source: str, target: str) -> None:
        """Give a file, whose content is whole and durable, the name `target`, which nothing has: of any number of
        callers, on any ways to the store, one succeeds. The name is durable after `sync_directory` of its folder.

        The file is linked to `target` and its old name removed. Where the store has no links, it is published as a
        folder with the file in it (`publish_as_folder`). Both forms exclude each other. An empty folder counts as
        nothing, since a loss of power may leave one.

        After success `source` is gone. After an error it may be there, and `published_folder(source)` too: each try
        uses a new name for its source, and whatever clears the source's folder deletes both.

        Raises:
            FileExists: the name is taken; over a network file system, perhaps by this very call.
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
        with contextlib.suppress(TransportError):  # It is published, whatever becomes of its old name.
            self.delete(source)

    def publish_as_folder(self, source: str, target: str) -> None:
        """Publish without links. No rename replaces a file by a folder, or a folder that is not empty: so a
        folder with the file in it is renamed to `target`."""
        paths.check(target)
        self.open_read(source).close()  # A folder would be renamed as well.
        folder = published_folder(source)
        record = paths.join(folder, RECORD)
        with contextlib.suppress(FileExists):  # A try that failed may have left it.
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
        """Open what was published, in either form, for reading by position.

        Raises:
            NoSuchFile: nothing is published there.
            PermissionDenied, TransportFailed.
        """
        try:
            return self.open_read(paths.join(path, RECORD))
        except NotADirectory:
            return self.open_read(path)
        except NoSuchFile as error:
            raise NoSuchFile(error.path.removesuffix(RECORD).rstrip("/")) from None

    def get_published(self, path: str) -> bytes:
        """The whole content of what was published, in either form.

        Raises:
            NoSuchFile: nothing is published there.
            PermissionDenied, TransportFailed.
        """
        with contextlib.closing(self.open_published(path)) as file:
            return file.read_at(0, file.size())

    def withdraw(self, path: str, aside: str) -> None:
        """Remove what was published, in either form. A folder is first renamed to `aside`, which nothing has: an empty
        folder can be replaced by a rename. What cannot be removed there stays there.

        Raises:
            NoSuchFile: nothing has that name.
            PermissionDenied, TransportFailed.
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
        """Make one folder.

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
        """The names in a folder, sorted.

        Raises:
            NoSuchFile, NotADirectory, PermissionDenied.
        """

    @abc.abstractmethod
    def stat(self, path: str) -> Stat:
        """The stat of a file or folder.

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
        """Do the steps in order, in as few trips as the store allows; those that ask hold their results then.

        The first that fails ends it: the steps before it are done, and of those after it no change is made. Where there
        are none, nobody is reached.

        Raises:
            TransportError: as the step that failed.
        """
        for step in steps:
            step.do(self)

    def exists(self, path: str) -> bool:
        """True if anything has that name."""
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
