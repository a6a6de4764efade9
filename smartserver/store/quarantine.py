"""Quarantine: a pack is written under `incoming/`, in a folder of its own, before any root may name it.

Its writer holds a lock in that folder for as long as it lives, so that a sweep tells a push that is going on, in this
process or another, from what a dead one left. On a store without locks only age tells.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from smartserver.records.model import Kind, Segment
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.index import IndexBuilder, Row
from smartserver.store.pack import PackWriter
from smartserver.store.root import PackEntry
from transports.base import Capability, ReadFile, Transport, WriteFile
from transports.errors import NoSuchFile, TransportError, TransportFailed

LOCK = "lock"
TRIES = 8
"""Folders tried before giving up; each loses only to a sweep within the microseconds before it is locked."""


class Quarantine:
    """One pack and its index while they are written and checked."""

    def __init__(
        self, folder: Transport, request: bytes, kinds: Sequence[Kind], randomness: Callable[[int], bytes]
    ) -> None:
        """`folder`: the repository's.

        Raises:
            NoSuchFile: the repository has no folder for it.
            PermissionDenied, NoSpace, TransportFailed.
        """
        self._folder = folder
        self._held = contextlib.ExitStack()
        self._place = self._enter(request, randomness)
        self.name = randomness(16)
        """The pack's name, used once."""
        self._reader: ReadFile | None = None
        self._file: WriteFile | None = None
        self._at = self._place
        """The folder both files are in at present."""
        self.index = IndexBuilder()
        try:
            self._file = folder.create(self._path("pack"))
            self._writer = PackWriter(self._file, kinds)
        except BaseException:
            self.discard()
            raise

    def add(self, content: bytes, segment: Segment, header_offsets: Sequence[int], rows: Sequence[Row]) -> int:
        """Append a segment and give its offset.

        Raises:
            LimitExceeded: more than an index holds.
            NoSpace, TransportFailed.
        """
        offset = self._writer.length
        self.index.add(offset, segment, header_offsets, rows)
        return self._writer.add(content)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly those bytes of what was added.

        Raises:
            TransportFailed: they are not there.
        """
        if self._reader is None:
            self._reader = self._folder.open_read(self._path("pack"))
        found = self._reader.read_at(offset, size)
        if len(found) != size:
            raise TransportFailed(self._path("pack"), f"{len(found)} bytes at {offset}, {size} were written")
        return found

    def seal(self) -> PackEntry:
        """Make both files durable; gives what a root says of them.

        Raises:
            NoSpace, TransportFailed: it is not tried again.
        """
        if self._file is None:
            raise ValueError("sealed twice")
        length, digest = self._writer.finish()
        self._file.sync()
        self._file.close()
        self._file = None
        index = self.index.finish(length, digest)
        self._folder.put(self._path("idx"), [index])
        return PackEntry(
            self.name, length, digest, len(index), index[-16:], self.index.segments, self.index.records
        )

    def publish(self) -> None:
        """Move both files among the packs, durably; as long as no root names them they are nobody's.

        Raises:
            NoSuchFile: the repository's folders are gone.
            PermissionDenied, NoSpace, TransportFailed.
        """
        here = self._path("pack"), self._path("idx")
        self._at = PACKS
        self._folder.rename(here[0], self._path("pack"))
        self._folder.rename(here[1], self._path("idx"))
        self._folder.sync_directory(PACKS)
        self._folder.sync_directory(self._place)

    def leave(self) -> None:
        """Give up the quarantine's folder; the pack, when it was published, stays. Never fails: a sweep does the rest."""
        for file in (self._file, self._reader):
            if file is not None:
                file.close()
        self._file = self._reader = None
        with contextlib.suppress(TransportError):
            if self._folder.capabilities & Capability.LOCK:
                self._folder.delete(f"{self._place}/{LOCK}")
            self._folder.remove_directory(self._place)
        with contextlib.suppress(TransportError):
            self._held.close()

    def discard(self) -> None:
        """Delete what was written, as far as that works: no root names it and none ever will."""
        for place in {self._place, self._at}:
            for suffix in ("pack", "idx"):
                with contextlib.suppress(TransportError):
                    self._folder.delete(f"{place}/{self.name.hex()}.{suffix}")
        self.leave()

    def _path(self, suffix: str) -> str:
        return f"{self._at}/{self.name.hex()}.{suffix}"

    def _enter(self, request: bytes, randomness: Callable[[int], bytes]) -> str:
        locks = bool(self._folder.capabilities & Capability.LOCK)
        for _ in range(TRIES):
            place = f"{INCOMING}/{request.hex()}-{randomness(4).hex()}"
            self._folder.make_directory(place)
            if not locks:
                return place
            with contextlib.suppress(NoSuchFile):
                self._held.enter_context(self._folder.lock(f"{place}/{LOCK}"))
                if self._folder.exists(f"{place}/{LOCK}"):
                    return place
            self._held.close()  # A sweep took the folder between its making and its locking.
        raise TransportFailed(INCOMING, f"{TRIES} folders were swept away before they could be locked")


def sweep(folder: Transport, old: Callable[[float], bool]) -> int:
    """Delete what dead writers left in quarantine; how many folders that was.

    `old`: whether that time of last change is long ago by the storage's clock, for stores without locks.
    """
    swept = 0
    for name in folder.list_directory(INCOMING):
        place = f"{INCOMING}/{name}"
        with contextlib.suppress(TransportError):
            if folder.capabilities & Capability.LOCK:
                with folder.try_lock(f"{place}/{LOCK}") as dead:
                    if not dead:
                        continue
                    _remove(folder, place)
            elif all(old(folder.stat(path).modified) for path in [place, *_files(folder, place)]):
                _remove(folder, place)
            else:
                continue
            swept += 1
    return swept


def _files(folder: Transport, place: str) -> list[str]:
    return [f"{place}/{name}" for name in folder.list_directory(place)]


def _remove(folder: Transport, place: str) -> None:
    for path in sorted(_files(folder, place), key=lambda path: path.endswith(f"/{LOCK}")):
        folder.delete(path)
    folder.remove_directory(place)
