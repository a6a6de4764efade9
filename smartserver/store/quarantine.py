"""Quarantine: a pack is written under `incoming/`, in a folder of its own, before any root may name it.

Its writer holds a lock in that folder for as long as it lives, so that a sweep tells a push that is going on, in this
process or another, from what a dead one left. In a `folder` repository, whose writers may be on stores that lock no
file, only age tells. On a store behind a link a small pack is held in memory until it is published, which is one trip.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from hashlib import blake2b

from smartserver.records.model import Kind, Segment
from smartserver.store.document import PackEntry
from smartserver.store.far import is_far
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.index import Row
from smartserver.store.index_build import Before, IndexBuilder
from smartserver.store.pack import TRAILER, PackWriter, encode_header
from transports.base import ReadFile, Transport, WriteFile
from transports.errors import NoSuchFile, NotADirectory, TransportError, TransportFailed
from transports.steps import Delete, Put, RemoveDirectory, Rename, Step, SyncDirectory

LOCK = "lock"
GATHERED = 64 << 10
"""Bytes of segments that are written at once: most have some hundred."""

TRIES = 8
"""Folders tried before giving up; each loses only to a sweep within the microseconds before it is locked."""


class Quarantine:
    """A place for one pack and its index until a root names them."""

    def __init__(
        self,
        above: Transport,
        home: str,
        request: bytes,
        randomness: Callable[[int], bytes],
        *,
        by_age: bool = False,
        prepare: Callable[[], str] | None = None,
    ) -> None:
        """`home`: the repository's folder below `above`, or the one that becomes it; `request`: whose id tells a person
        what a leftover is; `by_age`: only that tells one; `prepare` makes the folder where it is not there, and says
        where.

        Raises:
            NoSuchFile: the repository has no folder for it.
            PermissionDenied, NoSpace, TransportFailed.
        """
        self.above = above
        """What its paths count from."""
        self.name = randomness(16)
        """The pack's name, used once."""
        self._home = home
        self._request = request
        self._randomness = randomness
        self._by_age = by_age
        self._prepare = prepare
        self._locked = contextlib.ExitStack()
        self._place = ""
        self._at = ""
        self._held: tuple[bytes, bytes] | None = None
        """Pack and index, where they are in memory alone."""
        if not is_far(above):
            self.enter()

    @property
    def path(self) -> str:
        """Its folder; empty while it has none."""
        return self._place

    def enter(self) -> None:
        """Make the folder, if there is none yet.

        Raises:
            NoSuchFile: the repository has no folder for it.
            PermissionDenied, NoSpace, TransportFailed.
        """
        for _ in range(TRIES):
            if self._place:
                return
            place = f"{self._home}/{INCOMING}/{self._request.hex()}-{self._randomness(4).hex()}".lstrip("/")
            try:
                self.above.make_directory(place)
            except (NoSuchFile, NotADirectory):
                # No repository yet, or one whose folders a refused creation took away while this one was made.
                if self._prepare is None:
                    raise
                self._home = self._prepare()
                continue
            with contextlib.suppress(NoSuchFile):
                if self._by_age or self._locked.enter_context(self.above.try_lock(f"{place}/{LOCK}")):
                    self._place = self._at = place
                    return
            self._locked.close()  # A sweep took the folder, or is at it, between its making and its locking.
        raise TransportFailed(INCOMING, f"{TRIES} folders were swept away before they could be locked")

    def hold(self, pack: bytes, index: bytes) -> None:
        """Keep the content of both in memory, where there is no folder."""
        self._held = pack, index

    def open_pack(self) -> ReadFile:
        """The pack, to be read by position.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """
        return _Bytes(self._held[0]) if self._held is not None else self.above.open_read(self.pack_path)

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
        self.above.perform(self.publication(home))

    def publication(self, home: str) -> list[Step]:
        """The steps that `publish` both files, to be done with others; none where that was done."""
        packs = f"{home}/{PACKS}".lstrip("/")
        if self._at == packs:
            return []
        (pack, index), before = (self.pack_path, self.index_path), self._at
        self._at = packs
        if self._held is not None and not before:
            puts = [Put(self.pack_path, self._held[0]), Put(self.index_path, self._held[1])]
            return [*puts, SyncDirectory(packs)]
        moves = [Rename(pack, self.pack_path), Rename(index, self.index_path)]
        return [*moves, SyncDirectory(packs), SyncDirectory(before)]

    def leave(self) -> None:
        """Give up the folder; the pack, when it was published, stays. Never fails: a sweep does the rest."""
        with contextlib.suppress(TransportError):
            if self._place:
                lock = [] if self._by_age else [Delete(f"{self._place}/{LOCK}")]
                self.above.perform([*lock, RemoveDirectory(self._place)])
        with contextlib.suppress(TransportError):
            self._locked.close()

    def discard(self) -> None:
        """Delete what was written, as far as that works: no root names it and none ever will."""
        for place in {self._place, self._at} - {""}:
            for suffix in ("pack", "idx"):
                with contextlib.suppress(TransportError):
                    self.above.delete(f"{place}/{self.name.hex()}.{suffix}")
        self.leave()


class _Bytes(ReadFile):
    """A file in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read_at(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size]

    def size(self) -> int:
        return len(self._content)

    def close(self) -> None:
        """There is nothing to give back."""


class DraftPack:
    """The pack in a quarantine while it is written."""

    def __init__(self, quarantine: Quarantine, kinds: Sequence[Kind], before: Before) -> None:
        """Begin the pack; `before`: whether a record lies in the repository.

        Raises:
            NoSpace, PermissionDenied, TransportFailed.
        """
        self.quarantine = quarantine
        self._above = quarantine.above
        self._kinds = kinds
        self._reader: ReadFile | None = None
        self.index = IndexBuilder(before)
        self._pending: list[bytes] = [encode_header(kinds)]
        """What is not written yet, while the pack is held in memory its header too."""
        self._pending_size = len(self._pending[0])
        self._file: WriteFile | None = None
        self._writer: PackWriter | None = None
        if quarantine.path:
            self._begin()

    def _begin(self) -> PackWriter:
        self.quarantine.enter()
        self._file = self._above.create(self.quarantine.pack_path)
        try:
            writer = self._writer = PackWriter(self._file, self._kinds)
        except BaseException:
            self._file.close()
            raise
        self._pending_size -= len(self._pending.pop(0))
        return writer

    @property
    def length(self) -> int:
        """Bytes so far: where the next segment will lie."""
        return self._written + self._pending_size

    @property
    def _written(self) -> int:
        return 0 if self._writer is None else self._writer.length

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
        if self._writer is None:
            found = b"".join(self._pending)[offset : offset + size]
        else:
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
        """Make both files durable, or hold them in memory to be published; gives what a root says of them.

        Raises:
            NoSpace, TransportFailed: it is not tried again.
        """
        if self._writer is None or self._file is None:
            content = b"".join(self._pending)
            digest = blake2b(content, digest_size=TRAILER).digest()
            length = len(content) + TRAILER
            index = self.index.finish(length, digest)
            self.quarantine.hold(content + digest, index)
        else:
            self._write()
            length, digest = self._writer.finish()
            self._file.sync()
            self.close()
            index = self.index.finish(length, digest)
            self._above.put(self.quarantine.index_path, [index])
        segments, records = self.index.segments, self.index.records
        return PackEntry(self.quarantine.name, length, digest, len(index), index[-TRAILER:], segments, records)

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        if self._file is not None:
            self._file.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _write(self) -> None:
        writer = self._begin() if self._writer is None else self._writer
        content, self._pending, self._pending_size = b"".join(self._pending), [], 0
        if content:
            writer.append(content)


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
