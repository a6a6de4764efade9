"""`OpenPack`: a pack and its index in use. The index is opened with the snapshot that names it, the pack when read.

A file that is gone (`NoSuchFile`) means that the root moved on: the caller reads it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from smartserver.errors import CorruptFile
from smartserver.records.model import Key, Kind
from smartserver.store.document import PackEntry
from smartserver.store.far import FarPack, is_far
from smartserver.store.format import PACKS
from smartserver.store.index import Index, Row
from smartserver.store.index_build import rebuild
from smartserver.store.pack import PackReader
from transports.base import Transport
from transports.errors import NoSuchFile

FilesRead = Mapping[str, bytes | None]
"""Files by path, and what is in them; None: there is no such file."""
NONE_READ: FilesRead = {}


def pack_path(name: bytes) -> str:
    """Where a pack lies in its repository."""
    return f"{PACKS}/{name.hex()}.pack"


def index_path(name: bytes) -> str:
    """Where a pack's index lies in its repository."""
    return f"{PACKS}/{name.hex()}.idx"


class OpenPack:
    """A pack and its index, shared by the snapshots whose roots name it; closed when the last lets go of it."""

    def __init__(self, transport: Transport, entry: PackEntry, kinds: Sequence[Kind]) -> None:
        self.entry = entry
        self.path = pack_path(entry.name)
        self.far = is_far(transport)
        """Whether it lies behind a link."""
        self.index: Index
        self.rebuilt: bytes | None = None
        """The index as made from the pack, where its file was missing or damaged."""
        self._transport = transport
        self._kinds = tuple(kinds)
        self._reader: PackReader | None = None
        self._opening = threading.Lock()

    @property
    def reader(self) -> PackReader:
        """The pack's file, opened when first asked for.

        Raises:
            NoSuchFile: it is gone.
            CorruptFile: not of the length or the kinds the root names.
            TransportFailed: the store failed.
        """
        reader = self._reader
        if reader is None:
            with self._opening:
                reader = self._reader
                if reader is None:
                    reader = self._open()
        return reader

    def _open(self) -> PackReader:
        if self.far:
            reader: PackReader = FarPack(self._transport, self.path, self.entry, self._kinds)
            self._reader = reader
            return reader
        file = self._transport.open_read(self.path)
        try:
            reader = PackReader(file, self.entry.length, self.path)
            if reader.kinds != self._kinds:
                raise CorruptFile(self.path, 0, f"its kinds are {reader.kinds}, the repository's {self._kinds}")
        except BaseException:
            file.close()
            raise
        self._reader = reader
        return reader

    def open_index(self, resolve: Callable[[int, Key], Row | None], read: FilesRead = NONE_READ) -> None:
        """Map the index, or make it again from the pack where its file is missing, damaged or another pack's.

        `read`: files that were read already.

        Raises:
            NoSuchFile: index and pack are gone.
            CorruptFile: the pack is damaged too.
            TransportFailed: the store failed.
        """
        path = index_path(self.entry.name)
        try:
            view = self._transport.map_file(path) if path not in read else memoryview(_there(path, read[path]))
            if len(view) != self.entry.index_length:
                raise CorruptFile(path, len(view), f"{len(view)} bytes, expected {self.entry.index_length}")
            index = Index(view, path)
            if index.hash != self.entry.index_hash or index.pack_hash != self.entry.hash:
                raise CorruptFile(path, len(view), "not the index the root names")
        except (CorruptFile, NoSuchFile):
            self.rebuilt = rebuild(self.reader, resolve)
            index = Index(self.rebuilt, path)
            if index.pack_hash != self.entry.hash:
                raise CorruptFile(
                    self.path, self.reader.end, f"ends with {index.pack_hash.hex()}, expected {self.entry.hash.hex()}"
                ) from None
        self.index = index

    def __del__(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _there(path: str, content: bytes | None) -> bytes:
    if content is None:
        raise NoSuchFile(path)
    return content
