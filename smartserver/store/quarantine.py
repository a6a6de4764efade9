"""Quarantine: a pack is written under `incoming/`, in a folder of its own, before any root may name it.

Its writer holds a lock in that folder for as long as it lives, so that a sweep tells a push that is going on, in this
process or another, from what a dead one left. In a `folder` repository, whose writers may be on stores that lock no
file, only age tells.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from smartserver.records.model import Kind, Segment
from smartserver.store.document import PackEntry
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.index import Row
from smartserver.store.index_build import Before, IndexBuilder
from smartserver.store.pack import TRAILER, PackWriter
from transports.base import ReadFile, Transport
from transports.errors import NoSuchFile, TransportError, TransportFailed
from transports.steps import Delete, RemoveDirectory, Rename, SyncDirectory

LOCK = "lock"
GATHERED = 64 << 10
"""Bytes of segments that are written at once: most have some hundred."""

TRIES = 8
"""Folders tried before giving up; each loses only to a sweep within the microseconds before it is locked."""


class Quarantine:
    """A place for one pack and its index until a root names them."""

    def __init__(
        self, above: Transport, home: str, request: bytes, randomness: Callable[[int], bytes], *, by_age: bool = False
    ) -> None:
        """`home`: the repository's folder below `above`, or the one that becomes it; `request`: whose id tells a person
        what a leftover is; `by_age`: only that tells one.

        Raises:
            NoSuchFile: the repository has no folder for it.
            PermissionDenied, NoSpace, TransportFailed.
        """
        self.above = above
        """What its paths count from."""
        self.name = randomness(16)
        """The pack's name, used once."""
        self._by_age = by_age
        self._held = contextlib.ExitStack()
        self._place = self._enter(f"{home}/{INCOMING}".lstrip("/"), request, randomness)
        self._at = self._place

    @property
    def path(self) -> str:
        """Its folder."""
        return self._place

    @property
    def pack_path(self) -> str:
        """Where the pack is at present."""
        return f"{self._at}/{self.name.hex()}.pack"

    @property
    def index_path(self) -> str:
        """Where the index is at present."""
        return f"{self._at}/{self.name.hex()}.idx"

    def publish(self, home: str) -> None:
        """Move both files among the packs of a repository, durably; as long as no root names them they are nobody's.

        Raises:
            NoSuchFile: the repository's folders are gone.
            PermissionDenied, NoSpace, TransportFailed.
        """
        packs = f"{home}/{PACKS}".lstrip("/")
        if self._at == packs:
            return
        (pack, index), before = (self.pack_path, self.index_path), self._at
        self._at = packs
        moves = [Rename(pack, self.pack_path), Rename(index, self.index_path)]
        self.above.perform([*moves, SyncDirectory(packs), SyncDirectory(before)])

    def leave(self) -> None:
        """Give up the folder; the pack, when it was published, stays. Never fails: a sweep does the rest."""
        with contextlib.suppress(TransportError):
            lock = [] if self._by_age else [Delete(f"{self._place}/{LOCK}")]
            self.above.perform([*lock, RemoveDirectory(self._place)])
        with contextlib.suppress(TransportError):
            self._held.close()

    def discard(self) -> None:
        """Delete what was written, as far as that works: no root names it and none ever will."""
        for place in {self._place, self._at}:
            for suffix in ("pack", "idx"):
                with contextlib.suppress(TransportError):
                    self.above.delete(f"{place}/{self.name.hex()}.{suffix}")
        self.leave()

    def _enter(self, incoming: str, request: bytes, randomness: Callable[[int], bytes]) -> str:
        for _ in range(TRIES):
            place = f"{incoming}/{request.hex()}-{randomness(4).hex()}"
            self.above.make_directory(place)
            if self._by_age:
                return place
            with contextlib.suppress(NoSuchFile):
                if self._held.enter_context(self.above.try_lock(f"{place}/{LOCK}")):
                    return place
            self._held.close()  # A sweep took the folder, or is at it, between its making and its locking.
        raise TransportFailed(INCOMING, f"{TRIES} folders were swept away before they could be locked")


class DraftPack:
    """The pack in a quarantine while it is written."""

    def __init__(self, quarantine: Quarantine, kinds: Sequence[Kind], before: Before) -> None:
        """Begin the pack; `before`: whether a record lies in the repository.

        Raises:
            NoSpace, PermissionDenied, TransportFailed.
        """
        self.quarantine = quarantine
        self._above = quarantine.above
        self._reader: ReadFile | None = None
        self.index = IndexBuilder(before)
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._file = self._above.create(quarantine.pack_path)
        try:
            self._writer = PackWriter(self._file, kinds)
        except BaseException:
            self._file.close()
            raise

    @property
    def length(self) -> int:
        """Bytes so far: where the next segment will lie."""
        return self._writer.length + self._pending_size

    def add(self, content: bytes, segment: Segment, rows: Sequence[Row]) -> None:
        """Append a segment.

        Raises:
            LimitExceeded: more than an index holds.
            NoSpace, TransportFailed.
        """
        self.index.add(self.length, segment, rows)
        self._pending.append(content)
        self._pending_size += len(content)
        if self._pending_size >= GATHERED:
            self._write()

    def read(self, offset: int, size: int) -> bytes:
        """Exactly those bytes of what was added.

        Raises:
            TransportFailed: they are not there.
        """
        if offset + size > self._writer.length:
            self._write()
        if self._reader is None:
            self._reader = self._above.open_read(self.quarantine.pack_path)
        found = self._reader.read_at(offset, size)
        if len(found) != size:
            why = f"{len(found)} bytes at {offset}, {size} were written"
            raise TransportFailed(self.quarantine.pack_path, why)
        return found

    def seal(self) -> PackEntry:
        """Make both files durable; gives what a root says of them.

        Raises:
            NoSpace, TransportFailed: it is not tried again.
        """
        self._write()
        length, digest = self._writer.finish()
        self._file.sync()
        self.close()
        index = self.index.finish(length, digest)
        self._above.put(self.quarantine.index_path, [index])
        segments, records = self.index.segments, self.index.records
        return PackEntry(self.quarantine.name, length, digest, len(index), index[-TRAILER:], segments, records)

    def _write(self) -> None:
        content, self._pending, self._pending_size = b"".join(self._pending), [], 0
        if content:
            self._writer.append(content)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        self._file.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def sweep(folder: Transport, old: Callable[[float], bool], *, by_age: bool = False) -> int:
    """Delete what dead writers left in quarantine; how many folders that was.

    `by_age`: as of `Quarantine`; `old`: whether that time of last change is long ago by the storage's clock.
    """
    swept = 0
    for name in folder.list_directory(INCOMING):
        place = f"{INCOMING}/{name}"
        with contextlib.suppress(TransportError):
            if not by_age:
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
