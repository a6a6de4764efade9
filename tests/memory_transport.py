"""`MemoryTransport`: files in memory, with an exact account of what would outlive a loss of power.

Content is durable up to its file's last `sync`; a name made, replaced or removed is durable after `sync_directory` of
its folder. `crash` gives what a machine could find afterwards.
"""

from __future__ import annotations

import contextlib
import enum
import random
import threading
import time
from collections.abc import Callable, Iterator

from transports import paths
from transports.base import Capability, EntryKind, ReadFile, Stat, Transport, WriteFile
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NoSuchFile,
    NotADirectory,
    NotSupported,
    TransportFailed,
)


class Aftermath(enum.Enum):
    """The part of the unsynced work that reached the disk before the power went."""

    DURABLE_ONLY = "durable only"
    """Nothing: names never synced are absent, replaced and removed ones are back, content ends at its last sync."""
    EVERYTHING = "everything"
    """All of it."""
    TORN = "torn"
    """Every name, but the unsynced end of each file's content is torn, by seed: cut, zeros, or with a hole."""
    SOME = "some"
    """By seed: some of the names, in no order between two names, and torn content."""


class _File:
    __slots__ = ("content", "modified", "synced")

    def __init__(self, modified: float) -> None:
        self.content = bytearray()
        self.synced = 0  # Files are only appended to, so a length tells which bytes are durable.
        self.modified = modified


class _Change:
    """One name of one folder made, replaced or (`node` None) removed, not yet durable.

    `after`: the other half of a move between folders. The old name goes only when the new one is durable, because a
    rename is atomic: no crash may leave the file without a name.
    """

    __slots__ = ("after", "durable", "name", "node")

    def __init__(self, name: str, node: _File | _Folder | None, after: _Change | None = None) -> None:
        self.name = name
        self.node = node
        self.after = after
        self.durable = False


class _Folder:
    __slots__ = ("durable", "live", "modified", "pending")

    def __init__(self, modified: float) -> None:
        self.live: dict[str, _File | _Folder] = {}
        self.durable: dict[str, _File | _Folder] = {}
        self.pending: list[tuple[_Change, ...]] = []
        """Oldest first; the changes of one tuple reach the disk together (a rename within the folder)."""
        self.modified = modified

    def change(self, *changes: _Change, now: float) -> None:
        for change in changes:
            if change.node is None:
                self.live.pop(change.name, None)
            else:
                self.live[change.name] = change.node
        self.pending.append(changes)
        self.modified = now

    def settle(self, reaches: Callable[[], bool]) -> None:
        """Make pending changes durable where `reaches()` says so; two changes of one name stay in order."""
        blocked: set[str] = set()
        waiting: list[tuple[_Change, ...]] = []
        for changes in self.pending:
            names = {change.name for change in changes}
            early = any(change.after is not None and not change.after.durable for change in changes)
            if early or blocked & names or not reaches():
                blocked |= names
                waiting.append(changes)
                continue
            for change in changes:
                change.durable = True
                if change.node is None:
                    self.durable.pop(change.name, None)
                else:
                    self.durable[change.name] = change.node
        self.pending = waiting


class _Disk:
    """The tree and its one mutex; dead after a crash."""

    def __init__(self, clock: Callable[[], float], *, links: bool) -> None:
        self.clock = clock
        self.links = links
        self.mutex = threading.RLock()
        self.dead = False
        self.root = _Folder(clock())

    def alive(self, path: str) -> None:
        if self.dead:
            raise TransportFailed(path, "the machine that held this file crashed")

    def find(self, path: str) -> _File | _Folder:
        node: _File | _Folder = self.root
        for part in path.split("/") if path else ():
            if not isinstance(node, _Folder):
                raise NotADirectory(path)
            if part not in node.live:
                raise NoSuchFile(path)
            node = node.live[part]
        return node

    def find_file(self, path: str) -> _File:
        node = self.find(path)
        if isinstance(node, _Folder):
            raise TransportFailed(path, "not a plain file")
        return node

    def find_folder(self, path: str) -> _Folder:
        node = self.find(path)
        if not isinstance(node, _Folder):
            raise NotADirectory(path)
        return node

    def place(self, path: str) -> tuple[_Folder, str]:
        """The folder `path` lies in and its last part; an error names `path`, what the caller asked for."""
        folder, name = paths.split(path)
        try:
            return self.find_folder(folder), name
        except NoSuchFile:
            raise NoSuchFile(path) from None
        except NotADirectory:
            raise NotADirectory(path) from None


def _torn(content: bytes, synced: int, chance: random.Random) -> bytes:
    """Unsynced bytes after a crash: cut short, zeros to the full or a shorter length, or with a hole."""
    tail = len(content) - synced
    if tail == 0:
        return content
    kept = synced + chance.randrange(tail)
    match chance.randrange(4):
        case 0:
            return content[:kept]
        case 1:
            return content[:synced] + bytes(tail)
        case 2:
            return content[:kept] + bytes(len(content) - kept)
        case _:
            return content[:synced] + bytes(kept - synced) + content[kept:]


def _survivor(folder: _Folder, aftermath: Aftermath, chance: random.Random, files: dict[_File, _File]) -> _Folder:
    """The folder as the disk has it after the crash; everything in it is durable. `files`: what became of each so far,
    since a file may have several names."""
    found = _Folder(folder.modified)
    for name, node in sorted((folder.durable if aftermath is not Aftermath.TORN else folder.live).items()):
        if isinstance(node, _Folder):
            found.durable[name] = _survivor(node, aftermath, chance, files)
            continue
        if node not in files:
            files[node] = _surviving_file(node, aftermath, chance)
        found.durable[name] = files[node]
    found.live = dict(found.durable)
    return found


def _surviving_file(node: _File, aftermath: Aftermath, chance: random.Random) -> _File:
    file = _File(node.modified)
    if aftermath is Aftermath.DURABLE_ONLY:
        file.content += node.content[: node.synced]
    elif aftermath is Aftermath.EVERYTHING:
        file.content += node.content
    else:
        file.content += _torn(bytes(node.content), node.synced, chance)
    file.synced = len(file.content)
    return file


def _folders(folder: _Folder) -> Iterator[_Folder]:
    """`folder` and all below it, by durable and by live names."""
    yield folder
    for node in {id(node): node for node in (*folder.durable.values(), *folder.live.values())}.values():
        if isinstance(node, _Folder):
            yield from _folders(node)


class _OpenFile:
    """The common part of files that are read and written."""

    def __init__(self, disk: _Disk, file: _File, path: str) -> None:
        self._disk = disk
        self._file: _File | None = file
        self._path = path

    def _open(self) -> _File:
        self._disk.alive(self._path)
        if self._file is None:
            raise TransportFailed(self._path, "the file is closed")
        return self._file

    def close(self) -> None:
        self._file = None


class _MemoryReadFile(_OpenFile, ReadFile):
    def read_at(self, offset: int, size: int) -> bytes:
        with self._disk.mutex:
            return bytes(self._open().content[offset : offset + size])

    def size(self) -> int:
        with self._disk.mutex:
            return len(self._open().content)


class _MemoryWriteFile(_OpenFile, WriteFile):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        with self._disk.mutex:
            file = self._open()
            file.content += memoryview(data).cast("B")
            file.modified = self._disk.clock()

    def sync(self) -> None:
        with self._disk.mutex:
            file = self._open()
            file.synced = len(file.content)


class MemoryTransport(Transport):
    """A tree of files in memory, shared by its children; safe to use from several threads.

    `clock` gives the time of last change, in seconds. `links=False`: it has no hard links, as some file systems.
    """

    capabilities = Capability.APPEND | Capability.HANDLES

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        *,
        links: bool = True,
        _disk: _Disk | None = None,
        _prefix: str = "",
    ) -> None:
        self._disk = _disk if _disk is not None else _Disk(clock, links=links)
        self._prefix = _prefix

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[str]:
        """The full path, with the mutex held and the machine alive."""
        full = paths.join(self._prefix, path)
        with self._disk.mutex:
            self._disk.alive(full)
            yield full

    def crash(self, aftermath: Aftermath = Aftermath.DURABLE_ONLY, seed: int = 0) -> MemoryTransport:
        """Return the tree that the machine finds when the power is back, as a new transport; this one is dead, with
        its children and open files: every call raises `TransportFailed`. Equal seeds give equal results.
        """
        with self._disk.mutex:
            self._disk.alive(self._prefix)
            self._disk.dead = True
            chance = random.Random(seed)
            if aftermath in (Aftermath.EVERYTHING, Aftermath.SOME):
                for folder in list(_folders(self._disk.root)):
                    if aftermath is Aftermath.SOME:
                        folder.settle(lambda: chance.random() < 0.5)
                    else:
                        folder.durable = dict(folder.live)
            disk = _Disk(self._disk.clock, links=self._disk.links)
            disk.root = _survivor(self._disk.root, aftermath, chance, {})
            return MemoryTransport(_disk=disk)

    def child(self, path: str) -> MemoryTransport:
        return MemoryTransport(_disk=self._disk, _prefix=paths.join(self._prefix, path))

    def describe(self, path: str = "") -> str:
        full = paths.join(self._prefix, path)
        return f"memory:/{full}" if full else "memory:"

    def get(self, path: str) -> bytes:
        with self._at(path) as full:
            return bytes(self._disk.find_file(full).content)

    def open_read(self, path: str) -> ReadFile:
        with self._at(path) as full:
            return _MemoryReadFile(self._disk, self._disk.find_file(full), full)

    def create(self, path: str) -> WriteFile:
        with self._at(path) as full:
            folder, name = self._disk.place(full)
            if name in folder.live or not name:
                raise FileExists(full)
            now = self._disk.clock()
            file = _File(now)
            folder.change(_Change(name, file), now=now)
            return _MemoryWriteFile(self._disk, file, full)

    def append(self, path: str) -> WriteFile:
        with self._at(path) as full:
            return _MemoryWriteFile(self._disk, self._disk.find_file(full), full)

    def rename(self, source: str, target: str) -> None:
        with self._at(source) as old, self._at(target) as new:
            disk = self._disk
            node = disk.find(old)
            target_folder, target_name = disk.place(new)
            if old == new:
                return
            if not old or not new or new.startswith(old + "/") or old.startswith(new + "/"):
                raise TransportFailed(new, f"cannot give {old!r} a name inside or around itself")
            replaced = target_folder.live.get(target_name)
            if isinstance(replaced, _Folder):
                if not isinstance(node, _Folder):
                    raise TransportFailed(new, "is a directory")
                if replaced.live:
                    raise DirectoryNotEmpty(new)
            elif replaced is not None and isinstance(node, _Folder):
                raise NotADirectory(new)
            source_folder, source_name = disk.place(old)
            made = _Change(target_name, node)
            now = disk.clock()
            if source_folder is target_folder:
                source_folder.change(made, _Change(source_name, None), now=now)
            else:
                target_folder.change(made, now=now)
                source_folder.change(_Change(source_name, None, after=made), now=now)

    def link(self, source: str, target: str) -> None:
        with self._at(source) as old, self._at(target) as new:
            if not self._disk.links:
                raise NotSupported("link")
            file = self._disk.find_file(old)
            folder, name = self._disk.place(new)
            if name in folder.live or not name:
                raise FileExists(new)
            folder.change(_Change(name, file), now=self._disk.clock())

    def delete(self, path: str) -> None:
        with self._at(path) as full:
            self._disk.find_file(full)
            folder, name = self._disk.place(full)
            folder.change(_Change(name, None), now=self._disk.clock())

    def make_directory(self, path: str) -> None:
        with self._at(path) as full:
            folder, name = self._disk.place(full)
            if name in folder.live or not name:
                raise FileExists(full)
            now = self._disk.clock()
            folder.change(_Change(name, _Folder(now)), now=now)

    def remove_directory(self, path: str) -> None:
        with self._at(path) as full:
            if self._disk.find_folder(full).live:
                raise DirectoryNotEmpty(full)
            folder, name = self._disk.place(full)
            if not name:
                raise TransportFailed(full, "the root of a memory transport cannot be removed")
            folder.change(_Change(name, None), now=self._disk.clock())

    def list_directory(self, path: str) -> list[str]:
        with self._at(path) as full:
            return sorted(self._disk.find_folder(full).live)

    def stat(self, path: str) -> Stat:
        with self._at(path) as full:
            node = self._disk.find(full)
            if isinstance(node, _Folder):
                return Stat(EntryKind.DIRECTORY, 0, node.modified)
            return Stat(EntryKind.FILE, len(node.content), node.modified)

    def sync_directory(self, path: str) -> None:
        with self._at(path) as full:
            self._disk.find_folder(full).settle(lambda: True)
