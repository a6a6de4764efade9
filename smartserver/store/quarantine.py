"""Quarantine: a pack and its index are written to `incoming`, before any record may name them.

A leftover of a dead writer is recognised only by its age. For a remote store, a small pack is kept in memory until it
is published, which saves a round trip.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

from smartserver.records.model import Kind, Segment
from smartserver.spans import Part, span
from smartserver.store import remote
from smartserver.store.blocks import Blocks, seal
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.index import Index, Row
from smartserver.store.index_build import IndexBuilder, Numbering
from smartserver.store.native import Prover
from smartserver.store.pack import TRAILER, PackWriter
from smartserver.store.record import PackEntry
from transports.base import BytesFile, ReadFile, Step, Transport, WriteFile
from transports.errors import NoSuchFile, TransportError, TransportFailed
from transports.steps import Delete, GetStat, Put, Rename, SyncDirectory

SMALL = 64 << 10
"""The most bytes of an index (of some thousand records) that is not synced. A new pack and index with at most this
many bytes together stay in memory, so that the files are not read again."""


class Quarantine:
    """The temporary place of a pack and its index, until a record names them."""

    def __init__(
        self,
        folder: Transport,
        request: bytes,
        randomness: Callable[[int], bytes],
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """`request`: the id of the request. It is part of the file names, so that an administrator can identify a
        leftover. `prepare`: creates the folders of a new repository."""
        self.folder = folder
        self.name = randomness(16)
        """The unique name of the pack."""
        self._stem = f"{INCOMING}/{request.hex()}-{self.name.hex()}"
        self.prepare = prepare
        self.pack = HeldFile(self)
        self._index: bytes | None = None
        """The content of the index, if it is in memory."""
        self._is_moved = False

    @property
    def pack_path(self) -> str:
        """The current path of the pack."""
        return f"{PACKS}/{self.name.hex()}.pack" if self._is_moved else f"{self._stem}.pack"

    @property
    def index_path(self) -> str:
        """The current path of the index."""
        return f"{PACKS}/{self.name.hex()}.idx" if self._is_moved else f"{self._stem}.idx"

    def put_index(self, length: int, digest: bytes, index: Iterable[bytes], segments: int, records: int) -> PackEntry:
        """Write the index of the pack, or keep it in memory if the pack is in memory. Return the entry for both. A
        small index is not synced: rebuilding it after a loss of power costs less than waiting for the disk each
        time."""
        size, last = 0, b""

        def count() -> Iterator[bytes]:
            nonlocal size, last
            for last in index:
                size += len(last)
                yield last

        if self.pack.is_held:
            self._index = b"".join(count())
            self.pack.most = sys.maxsize  # The trailer must stay in memory too.
        else:
            with contextlib.closing(self.folder.create(self.index_path)) as file:
                for piece in count():
                    file.write(piece)
                if size > SMALL:
                    file.sync()
        return PackEntry(self.name, length, digest, size, last[-TRAILER:], segments, records)

    @property
    def held_files(self) -> dict[str, bytes]:
        """The contents of both files by path, if they are in memory, else empty."""
        return {} if self._index is None else {self.pack_path: bytes(self.pack.content), self.index_path: self._index}

    @property
    def small_files(self) -> dict[str, bytes]:
        """The `held_files` if they have at most `SMALL` bytes together; else empty."""
        if self._index is None or len(self.pack.content) + len(self._index) > SMALL:
            return {}
        return self.held_files

    def moves(self) -> list[Step]:
        """Return the steps that move both files to `packs` durably; no steps if this method was called before."""
        if self._is_moved:
            return []
        pack, index = self.pack_path, self.index_path
        self._is_moved = True
        moves = Rename(pack, self.pack_path)
        if self._index is None:
            return [moves, Rename(index, self.index_path), SyncDirectory(PACKS)]
        # The index is written directly to `packs`, before the pack moves there. This saves a trip, and does no harm.
        puts = [Put(pack, bytes(self.pack.content)), Put(self.index_path, self._index)]
        return [*puts, moves, SyncDirectory(PACKS)]

    def discard(self) -> None:
        """Delete both files, ignoring errors of the store. It must be called only if no record names the files or ever
        will."""
        self.pack.close()
        files = [f"{stem}.{end}" for stem in (self._stem, f"{PACKS}/{self.name.hex()}") for end in ("pack", "idx")]
        looks = [GetStat(path) for path in files]
        with contextlib.suppress(TransportError):
            self.folder.perform(looks)
            self.folder.perform([Delete(look.path) for look in looks if look.result is not None])


class HeldFile(WriteFile, ReadFile):
    """The pack of a quarantine, readable while it is written: in memory until it is too large, then in a file."""

    def __init__(self, quarantine: Quarantine) -> None:
        self.content = bytearray()
        """The whole pack, while it is in memory."""
        # A strong reference would form a cycle and keep the content in memory until the next garbage collection.
        self._quarantine: Quarantine = weakref.proxy(quarantine)
        self.most = remote.AT_ONCE if remote.is_remote(quarantine.folder) else 0
        """The most bytes that are kept in memory."""
        self._file: WriteFile | None = None
        self._reader: ReadFile | None = None

    @property
    def is_held(self) -> bool:
        """True if the pack is in memory."""
        return self._file is None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes in memory. Once the pack would exceed `most` bytes, move it to the file and append there."""
        if self._file is None and len(self.content) + len(data) <= self.most:
            self.content += data
            return
        if self._file is None:
            if self._quarantine.prepare is not None:
                self._quarantine.prepare()
            self._file = self._quarantine.folder.create(self._quarantine.pack_path)
            content, self.content = self.content, bytearray()
            self._file.write(content)
        self._file.write(data)

    def sync(self) -> None:
        """Sync the file, unless the content is in memory: then it becomes durable when it is published."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file, unless the content is in memory."""
        for file in (self._file, self._reader):
            if file is not None:
                file.close()
        self._reader = None

    def read_at(self, offset: int, size: int) -> bytes:
        """Read a range of the bytes written so far."""
        if self._file is None:
            return bytes(self.content[offset : offset + size])
        return self._opened().read_at(offset, size)

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the file; None while the pack is in memory."""
        return None if self._file is None else self._opened().descriptor

    def size(self) -> int:
        """Return the number of bytes written so far."""
        return len(self.content) if self._file is None else self._opened().size()

    def _opened(self) -> ReadFile:
        if self._reader is None:
            self._reader = self._quarantine.folder.open_read(self._quarantine.pack_path)
        return self._reader


def store_time(folder: Transport, randomness: Callable[[int], bytes]) -> float:
    """Return the time by the store's own clock, in seconds since the epoch: the time of a new temporary file."""
    made = GetStat(f"{INCOMING}/{randomness(8).hex()}.time")
    folder.perform([Put(made.path), made, Delete(made.path)])
    if made.result is None:
        raise NoSuchFile(made.path)
    return made.result.modified


GATHERED = 64 << 10
"""The number of bytes of segments that are gathered for one write. Most segments have only some hundred bytes."""


class DraftPack:
    """The pack in a quarantine while it is written."""

    def __init__(
        self, quarantine: Quarantine, kinds: Sequence[Kind], numbering: Numbering, prover: Prover | None = None
    ) -> None:
        """Begin the pack. `numbering`: as in `IndexBuilder`. `prover`: builds the index in place of an
        `IndexBuilder`."""
        self.quarantine = quarantine
        self.index: IndexBuilder | Prover = prover or IndexBuilder(numbering=numbering)
        self._pending = bytearray()
        """The bytes that are not written yet."""
        self._file = quarantine.pack
        self._writer = PackWriter(self._file, kinds)

    @property
    def length(self) -> int:
        """The number of bytes so far, which is the offset of the next segment."""
        return len(self._pending) + self._writer.length

    def add(self, content: bytes, segment: Segment, rows: Sequence[Row], bases: Sequence[int]) -> None:
        """Append a segment. `rows`, `bases`: as in `IndexBuilder.add_numbered`."""
        if isinstance(self.index, IndexBuilder):
            self.index.add_numbered(self.length, segment, rows, bases)
        else:
            self.index.note(content, self.length, rows, bases)
        self.append(content)

    def append(self, content: bytes) -> None:
        """Append bytes of segments that are in the index already."""
        if len(content) >= GATHERED:
            self.flush()
            self._writer.append(content)
            return
        self._pending += content
        if len(self._pending) >= GATHERED:
            self.flush()

    def flush(self) -> None:
        """Write the pending bytes."""
        content, self._pending = bytes(self._pending), bytearray()
        if content:
            self._writer.append(content)

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly `size` bytes of the added segments."""
        if offset + size > self._writer.length:
            self.flush()
        found = self._file.read_at(offset, size)
        if len(found) != size:
            why = f"{len(found)} bytes at {offset}, {size} were written"
            raise TransportFailed(self.quarantine.pack_path, why)
        return found

    def seal(self) -> PackEntry:
        """End the pack, write its index, and return the entry for both."""
        self.flush()
        length, digest = self._writer.finish()
        if isinstance(self.index, IndexBuilder):
            pieces = self.index.finish(length, digest)
        else:
            pieces = seal([self.index.index(length, digest)])
        return self.quarantine.put_index(length, digest, pieces, self.index.segments, self.index.records)

    @contextlib.contextmanager
    def open_index(self) -> Iterator[Index]:
        """Open the index of the sealed pack."""
        place = self.quarantine
        held = place.held_files.get(place.index_path)
        with contextlib.closing(place.folder.open_read(place.index_path) if held is None else BytesFile(held)) as file:
            yield Index(Blocks(file, place.index_path))

    def write_down(self, trailer: bytes) -> None:
        """Append the trailer to the sealed pack; sync and close the file, unless the content is in memory."""
        self._file.write(trailer)
        with span(Part.DISK, "sync the pack"):
            self._file.sync()
        self.close()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()
