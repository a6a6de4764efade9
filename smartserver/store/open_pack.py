"""`OpenPack`: an open index and its pack. A snapshot opens the indexes of its packs; a pack is opened when it is read.

A pack that was joined with others is deleted a day later, and a snapshot may be read for longer. The joined pack has
the same segments, unchanged. So if a pack is missing when it is first read, its segments are looked for in the newest
state, by their ids and lengths, and read there. A file is closed with the last reference to it, never by name or
number: a reader keeps the files that it began with.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

from smartserver.errors import CorruptFile, RepositoryChanged
from smartserver.records.model import Kind
from smartserver.store import remote
from smartserver.store.blocks import Blocks, Remake
from smartserver.store.caches import Block
from smartserver.store.format import PACKS
from smartserver.store.index import Index
from smartserver.store.index_build import Resolve, rebuild
from smartserver.store.pack import MovedPack, PackReader
from smartserver.store.record import PackEntry
from smartserver.store.remote import PackRange, RemotePack, is_remote
from smartserver.store.summaries import LEAST, Summaries, summaries_path
from transports.base import Transport
from transports.errors import NoSuchFile, TransportError

LOOK_AGAIN = 10
"""Seconds after which a missing file of summaries is looked for again, because another process may have written it."""

log = logging.getLogger("smartserver")

FilesRead = Mapping[str, bytes | None]
"""The contents of files by path. None means that the file is missing."""
NONE_READ: FilesRead = {}


Seek = Callable[[PackEntry, Index], "tuple[PackEntry, int] | None"]
"""A function that finds the segments of a deleted pack, by its index, in the newest state. It returns the pack that has
them, and the difference of their offsets; None if the newest state still names the deleted pack."""


def pack_path(name: bytes) -> str:
    """Return the path of a pack in its repository."""
    return f"{PACKS}/{name.hex()}.pack"


def index_path(name: bytes) -> str:
    """Return the path of a pack's index in its repository."""
    return f"{PACKS}/{name.hex()}.idx"


class OpenPack:
    """A pack and its index, shared by the snapshots whose states name it."""

    def __init__(self, transport: Transport, entry: PackEntry, kinds: Sequence[Kind], seek: Seek) -> None:
        self.entry = entry
        self.path = pack_path(entry.name)
        self.is_remote = is_remote(transport)
        """True if the pack is in a remote store."""
        self.index: Index
        self._rebuilt: bytes | None = None
        self._content: bytes | None = None
        """The content of the pack's file, if it was read with the index."""
        self._transport = transport
        self._kinds = tuple(kinds)
        self._seek = seek
        self._reader: PackReader | None = None
        self._opening = threading.Lock()
        self._summaries: Summaries | None = None
        self._look_again = 0.0
        """The time, by `time.monotonic`, from which a missing file of summaries is looked for again."""
        self._is_damaged = False
        """True if the file of summaries was damaged when it was last read."""

    @property
    def reader(self) -> PackReader:
        """The reader of the pack's segments, opened on first use. It reads the pack's file or, if that is missing, the
        pack that has its segments now."""
        reader = self._reader
        if reader is None:
            with self._opening:
                reader = self._reader
                if reader is None:
                    reader = self._reader = self._open()
        return reader

    def _open(self) -> PackReader:
        entry, index, seek = self.entry, self.index, self._seek

        def find() -> PackRange | None:
            found = seek(entry, index)
            return None if found is None else PackRange(pack_path(found[0].name), *found)

        if self.is_remote:
            # `find` does not refer to this object: a reference would form a cycle and keep both alive.
            return RemotePack(self._transport, PackRange(self.path, entry, 0), self._kinds, find, self._content)
        place: PackRange | None = None
        for moves_left in range(remote.MOVES, -1, -1):
            try:
                if place is None:
                    return self._open_at(self.path, entry)
                inside = self._open_at(place.path, place.entry)
                return MovedPack(inside, place.shift, entry.length, entry.hash, self.path)
            except NoSuchFile:
                place = find() if moves_left else None
                if place is None:
                    raise
        raise AssertionError("the last move returns or raises")

    def _open_at(self, path: str, entry: PackEntry) -> PackReader:
        reader = PackReader(self._transport.open_read(path), entry.length, path)
        if reader.kinds != self._kinds:
            raise CorruptFile(path, 0, f"its kinds of records are {reader.kinds}, expected {self._kinds}")
        return reader

    def _alone(self) -> PackReader:
        """Return a reader of the pack's own file. Without an index, the segments cannot be found in another pack."""
        if self.is_remote:
            return RemotePack(self._transport, PackRange(self.path, self.entry, 0), self._kinds, lambda: None)
        return self._open_at(self.path, self.entry)

    @property
    def rebuilt(self) -> bytes | None:
        """The index that was rebuilt from the pack, because its file was missing or damaged; None if its file is
        used."""
        return self._rebuilt or self.index.blocks.remade

    def open_index(self, resolve: Resolve, read: FilesRead = NONE_READ) -> None:
        """Open the index, or rebuild it from the pack if its file is missing, damaged or belongs to another pack.
        `resolve`: finds records in earlier packs, until `resolve_by` is called. `read`: files that were read
        already."""
        path, self._content = index_path(self.entry.name), read.get(self.path)
        try:
            file = read[path] if path in read else self._transport.open_read(path)
            if file is None:
                raise NoSuchFile(path)
            blocks = Blocks(file, path)
            if (blocks.size, blocks.hash) != (self.entry.index_length, self.entry.index_hash):
                raise CorruptFile(path, blocks.size, "not the index the log names")
            index = Index(blocks)
            if index.pack_hash != self.entry.hash:
                raise CorruptFile(path, blocks.size, "not the index of the pack that the log names")
        except (CorruptFile, NoSuchFile):
            pack = self._alone()
            self._rebuilt = rebuild(pack, resolve)
            index = Index.of(self._rebuilt, path)
            if index.pack_hash != self.entry.hash:
                raise CorruptFile(
                    self.path, pack.end, f"ends with {index.pack_hash.hex()}, expected {self.entry.hash.hex()}"
                ) from None
        index.blocks.remake = self._remake()
        self.index = index
        self.resolve_by(lambda: resolve)

    def summarised(self, block: int, *, messages: bool, changes: bool) -> Block | None:
        """Return the rows of a log for the revisions of a block (`Summaries.block`). Return None if the file of
        summaries lacks them, cannot be read, or is in a remote store, where reading it would take more round trips."""
        found = self._open_summaries()
        if found is None:
            return None
        try:
            return found.block(block, messages=messages, changes=changes)
        except (CorruptFile, TransportError) as error:
            self._without_summaries(error)
            return None

    @property
    def has_summaries(self) -> bool:
        """True if the file of summaries exists and can be opened, or is not needed."""
        return self.entry.segments < LEAST or (not self._is_damaged and self._open_summaries() is not None)

    def check_summaries(self) -> None:
        """Read the whole file of summaries. If any part is damaged, `has_summaries` is False afterwards."""
        found = self._open_summaries()
        if found is None:
            return
        try:
            for block in range(found.blocks):
                found.block(block, messages=True, changes=found.columns == 3)
        except (CorruptFile, TransportError) as error:
            self._without_summaries(error)

    def look_for_summaries(self) -> None:
        """Note that the file of summaries was written. It is opened at the next use."""
        self._summaries, self._look_again, self._is_damaged = None, 0.0, False

    def _open_summaries(self) -> Summaries | None:
        is_due = not self.is_remote and self.entry.segments >= LEAST and time.monotonic() >= self._look_again
        if self._summaries is None and is_due:
            try:
                self._summaries = Summaries(self._transport.open_read(summaries_path(self.entry.name)), self.entry)
            except NoSuchFile:
                self._look_again = time.monotonic() + LOOK_AGAIN
            except (CorruptFile, TransportError) as error:
                self._without_summaries(error)
        return self._summaries

    def _without_summaries(self, error: CorruptFile | TransportError) -> None:
        log.warning("%s: logs read the records instead, until upkeep has made the file again", error)
        self._summaries, self._look_again, self._is_damaged = None, time.monotonic() + LOOK_AGAIN, True

    def resolve_by(self, resolve: Callable[[], Resolve]) -> None:
        """Set the function that finds records in earlier packs if the index must be rebuilt. While a snapshot is
        opened, its own packs are searched. Later searches must not refer to them: that would keep packs open that were
        joined long ago."""
        self._resolve = resolve

    def _remake(self) -> Remake:
        """Return a function that rebuilds the index if a block is damaged. The function refers to the pack weakly,
        because a strong reference would form a cycle."""
        here = weakref.ref(self)
        name = index_path(self.entry.name)

        def remake() -> bytes:
            pack = here()
            if pack is None:
                raise CorruptFile(name, 0, "the index is damaged")
            try:
                reader = pack._reader or pack._alone()  # Without an index it cannot be found elsewhere.
            except NoSuchFile:
                raise RepositoryChanged(pack.path) from None
            return rebuild(reader, pack._resolve())

        return remake


class SegmentReader:
    """Reads ranges of stored segments in order. It must be used by one thread at a time."""

    def __init__(self, runs: Iterable[tuple[OpenPack, int, int]], segments: int) -> None:
        """`runs`: for each run, the pack and the offsets where the run starts and stops."""
        self.segments = segments
        self._runs = list(runs)
        self._runs.reverse()
        self.size = sum(stop - start for _, start, stop in self._runs)
        self.left = self.size
        """The number of bytes that were not read yet."""
        self._is_remote = any(pack.is_remote for pack, _, _ in self._runs)
        self._ahead = b""

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer, or none, at the end."""
        wanted = min(size, self.left)
        self.left -= wanted
        if len(self._ahead) < wanted:
            more = self._read(max(wanted - len(self._ahead), remote.AT_ONCE if self._is_remote else 0))
            self._ahead = self._ahead + more if self._ahead else more
        # A slice of all bytes is no copy.
        read, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
        return read

    def _read(self, size: int) -> bytes:
        """Return the next `size` bytes of the packs, or fewer at the end."""
        wanted = []
        while size and self._runs:
            pack, start, stop = self._runs.pop()
            taken = min(size, stop - start)
            wanted.append((pack.reader, start, taken))
            size -= taken
            if start + taken < stop:
                self._runs.append((pack, start + taken, stop))
        pieces = remote.read_across(wanted)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
