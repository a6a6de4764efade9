"""Quarantine: a pack is written under `incoming/`, in a folder of its own, before any root may name it.

Its writer holds a lock in that folder for as long as it lives, so that a sweep tells a push that is going on, in this
process or another, from what a dead one left. In a `folder` repository, whose writers may be on stores that lock no
file, only age tells. On a store behind a link a small pack is held in memory until it is published, which is one trip.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from smartserver.store import far
from smartserver.store.far import is_far
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.pack import TRAILER
from transports import steps
from transports.base import BytesFile, ReadFile, Transport, WriteFile
from transports.errors import NoSuchFile, NotADirectory, TransportError, TransportFailed
from transports.steps import Step

LOCK = "lock"

TRIES = 8
"""Folders tried before giving up; each loses only to a look within the microseconds before it is locked."""


class WrittenIndex(NamedTuple):
    """What a root says of an index."""

    length: int
    hash: bytes
    """The file's last bytes."""


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
        self._growing: _Growing | None = None
        """The pack, where it is being written in memory."""
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
            place = self._choose()
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
            self._locked.close()  # Another looked whether it is a dead one's, between its making and its locking.
        raise TransportFailed(INCOMING, f"{TRIES} folders were swept away before they could be locked")

    def _choose(self) -> str:
        """A folder that nobody has."""
        return f"{self._home}/{INCOMING}/{self._request.hex()}-{self._randomness(4).hex()}".lstrip("/")

    def create(self, size: int) -> WriteFile:
        """The pack, to be written. `size`: about how many bytes it gets; behind a link a small one is kept in memory.

        Raises:
            NoSuchFile: the repository has no folder for it.
            PermissionDenied, NoSpace, TransportFailed.
        """
        if is_far(self.above) and size <= far.AT_ONCE:
            self._growing = _Growing()
            return self._growing
        self.enter()
        return self.above.create(self.pack_path)

    def put_index(self, index: Iterable[bytes]) -> WrittenIndex:
        """Make the index durable, or keep it in memory as the pack is.

        Raises:
            FileExists, NoSuchFile, PermissionDenied, NoSpace, TransportFailed.
        """
        if self._growing is not None:
            return self.hold(b"".join(self._growing.content), index)
        size, last = 0, b""

        def count() -> Iterator[bytes]:
            nonlocal size, last
            for last in index:
                size += len(last)
                yield last

        self.above.put(self.index_path, count())
        return WrittenIndex(size, last[-TRAILER:])

    def hold(self, pack: bytes, index: Iterable[bytes]) -> WrittenIndex:
        """Keep the content of both in memory, where there is no folder; as `put_index`."""
        content = b"".join(index)
        self._held = pack, content
        return WrittenIndex(len(content), content[-TRAILER:])

    def append(self, content: bytes) -> None:
        """Add to the pack that is kept in memory."""
        assert self._held is not None  # Else its writer appends to the file.
        self._held = self._held[0] + content, self._held[1]

    def open_pack(self) -> ReadFile:
        """The pack, to be read by position.

        Raises:
            NoSuchFile, PermissionDenied, TransportFailed.
        """
        return BytesFile(self._held[0]) if self._held is not None else self.above.open_read(self.pack_path)

    def open_index(self) -> ReadFile:
        """The index, as `open_pack`."""
        return BytesFile(self._held[1]) if self._held is not None else self.above.open_read(self.index_path)

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
            puts = [steps.Put(self.pack_path, self._held[0]), steps.Put(self.index_path, self._held[1])]
            return [*puts, steps.SyncDirectory(packs)]
        moves = [steps.Rename(pack, self.pack_path), steps.Rename(index, self.index_path)]
        return [*moves, steps.SyncDirectory(packs), steps.SyncDirectory(before)]

    def time(self) -> float:
        """The time by the storage's own clock: when its folder was made just now. It is given up by that.

        Raises:
            NoSuchFile: the repository has no folder for it.
            PermissionDenied, NoSpace, TransportFailed.
        """
        if self._by_age and not self._place:
            made = steps.GetStat(self._choose())
            self.above.perform([steps.MakeDirectory(made.path), made, steps.RemoveDirectory(made.path)])
        else:
            self.enter()
            made = steps.GetStat(self._place)
            try:
                self.above.perform([made])
            finally:
                self.leave()
        if made.result is None:
            raise NoSuchFile(made.path)
        return made.result.modified

    def leave(self) -> None:
        """Give up the folder; the pack, when it was published, stays. Never fails: a sweep does the rest."""
        with contextlib.suppress(TransportError):
            if self._place:
                lock = [] if self._by_age else [steps.Delete(f"{self._place}/{LOCK}")]
                self.above.perform([*lock, steps.RemoveDirectory(self._place)])
        with contextlib.suppress(TransportError):
            self._locked.close()

    def discard(self) -> None:
        """Delete what was written, as far as that works: no root names it and none ever will."""
        places = {self._place, self._at} - {""}
        files = [steps.GetStat(f"{place}/{self.name.hex()}.{suffix}") for place in places for suffix in ("pack", "idx")]
        with contextlib.suppress(TransportError):
            self.above.perform(files)
            self.above.perform([steps.Delete(each.path) for each in files if each.result is not None])
        self.leave()


class _Growing(WriteFile):
    """A file that is written in memory."""

    def __init__(self) -> None:
        self.content: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.content.append(bytes(data))

    def sync(self) -> None:
        """It is durable once it is published."""

    def close(self) -> None:
        """There is nothing to give back."""


def sweep(folder: Transport, names: Sequence[str], old: Callable[[float], bool], *, by_age: bool = False) -> int:
    """Delete what dead writers left in quarantine; how many folders that was.

    `names`: what is in it; `by_age`: as of `Quarantine`; `old`: whether that time of last change is long ago by the
    storage's clock.
    """
    places = [f"{INCOMING}/{name}" for name in names]
    return _sweep_old(folder, places, old) if by_age else sum(_sweep_dead(folder, place) for place in places)


def _sweep_dead(folder: Transport, place: str) -> bool:
    """Remove a folder unless its writer holds the lock in it; whether that was done."""
    with contextlib.suppress(TransportError), folder.try_lock(f"{place}/{LOCK}") as dead:
        if dead:
            _remove(folder, place, folder.list_directory(place))
            return True
    return False


def is_at_work(folder: Transport, request: bytes) -> bool:
    """Whether a living writer has a folder for this request, as far as that can be seen; its writers hold locks."""
    with contextlib.suppress(TransportError):
        names = folder.list_directory(INCOMING)
        return any(_lives(folder, f"{INCOMING}/{name}") for name in names if name.startswith(f"{request.hex()}-"))
    return False


def _lives(folder: Transport, place: str) -> bool:
    with contextlib.suppress(TransportError), folder.try_lock(f"{place}/{LOCK}") as dead:
        return not dead
    return False


def _sweep_old(folder: Transport, places: Sequence[str], old: Callable[[float], bool]) -> int:
    """Remove the folders in which nothing was done for long; how many. They are looked at together, or one by one where
    one of them may not be looked at, which stays."""
    try:
        return _sweep_together(folder, places, old)
    except TransportError:
        return sum(_sweep_old(folder, [place], old) for place in places) if len(places) > 1 else 0


def _sweep_together(folder: Transport, places: Sequence[str], old: Callable[[float], bool]) -> int:

    def is_old(look: steps.GetStat) -> bool:
        return look.result is not None and old(look.result.modified)

    looks = [steps.GetStat(place) for place in places]
    folder.perform(looks)
    listed = [steps.ListDirectory(each.path) for each in looks if is_old(each)]
    folder.perform(listed)
    inside = [[steps.GetStat(f"{each.path}/{name}") for name in each.result or ()] for each in listed]
    folder.perform([each for row in inside for each in row])
    swept = 0
    for each, row in zip(listed, inside, strict=True):
        with contextlib.suppress(TransportError):
            if all(map(is_old, row)):
                _remove(folder, each.path, each.result or ())
                swept += 1
    return swept


def _remove(folder: Transport, place: str, files: Sequence[str]) -> None:
    """Remove a folder with its files, the one that says that it is somebody's the last."""
    last = sorted(files, key=lambda name: name == LOCK)
    folder.perform([*[steps.Delete(f"{place}/{name}") for name in last], steps.RemoveDirectory(place)])
