"""Quarantine: a pack is written under `incoming/`, in a folder of its own, before any root may name it.

What tells a push that is going on, in this process or another, from what a dead one left is the publisher's: a lock in
that folder (`publish.file`), or its age (`publish.folder`), which holds a small pack in memory until it is published.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from smartserver.store.format import INCOMING, PACKS
from smartserver.store.pack import TRAILER
from transports import steps
from transports.base import ReadFile, Step, Transport, WriteFile
from transports.errors import NoSuchFile, NotADirectory, TransportError, TransportFailed

TRIES = 8
"""Folders tried before giving up; each loses only to a look within the microseconds before it is locked."""


class WrittenIndex(NamedTuple):
    """What a root says of an index."""

    length: int
    hash: bytes
    """The file's last bytes."""


class Quarantine(abc.ABC):
    """A place for one pack and its index until a root names them.

    What writes or reads raises NoSuchFile where the repository has no folder for it, and PermissionDenied, NoSpace or
    TransportFailed.
    """

    def __init__(
        self,
        above: Transport,
        home: str,
        request: bytes,
        randomness: Callable[[int], bytes],
        prepare: Callable[[], str] | None = None,
    ) -> None:
        """`home`: the repository's folder below `above`, or the one that becomes it; `request`: whose id tells a person
        what a leftover is; `prepare` makes the folder where it is not there, and says where."""
        self.above = above
        """What its paths count from."""
        self.name = randomness(16)
        """The pack's name, used once."""
        self.path = ""
        """Its folder; empty while it has none."""
        self._home = home
        self._request = request
        self._randomness = randomness
        self._prepare = prepare
        self._claimed = contextlib.ExitStack()
        """What says that the folder is somebody's, while this is open."""
        self._at = ""

    @abc.abstractmethod
    def create(self) -> WriteFile:
        """The pack, to be written."""

    @abc.abstractmethod
    def open_pack(self) -> ReadFile:
        """The pack, to be read by position."""

    @abc.abstractmethod
    def open_index(self) -> ReadFile:
        """The index, to be read by position."""

    @abc.abstractmethod
    def time(self) -> float:
        """The time by the storage's own clock: when its folder was made just now. It is given up by that."""

    def claim(self, place: str) -> bool:
        """Say that a new folder is this one's; False where it was swept away before that."""
        return True

    def release(self) -> list[Step]:
        """The steps that take away what `claim` put there."""
        return []

    def write_index(self, index: Iterator[bytes]) -> None:
        """Make the index durable, where it is a file."""
        self.above.put(self.index_path, index)

    def enter(self) -> None:
        """Make the folder, if there is none yet."""
        for _ in range(TRIES):
            if self.path:
                return
            place = self.choose()
            try:
                self.above.make_directory(place)
            except (NoSuchFile, NotADirectory):
                # No repository yet, or one whose folders a refused creation took away while this one was made.
                if self._prepare is None:
                    raise
                self._home = self._prepare()
                continue
            if self.claim(place):
                self.path = self._at = place
                return
        raise TransportFailed(INCOMING, f"{TRIES} folders were swept away before they could be locked")

    def choose(self) -> str:
        """A folder that nobody has."""
        return f"{self._home}/{INCOMING}/{self._request.hex()}-{self._randomness(4).hex()}".lstrip("/")

    def put_index(self, index: Iterable[bytes]) -> WrittenIndex:
        """Make the index durable, or keep it in memory as the pack is.

        Raises:
            FileExists.
        """
        size, last = 0, b""

        def count() -> Iterator[bytes]:
            nonlocal size, last
            for last in index:
                size += len(last)
                yield last

        self.write_index(count())
        return WrittenIndex(size, last[-TRAILER:])

    @property
    def pack_path(self) -> str:
        """Where the pack is at present."""
        return f"{self._at}/{self.name.hex()}.pack"

    @property
    def index_path(self) -> str:
        """Where the index is at present."""
        return f"{self._at}/{self.name.hex()}.idx"

    def publication(self, home: str) -> list[Step]:
        """The steps that move both files among the packs of a repository, durably; none where that was done. As long as
        no root names them they are nobody's."""
        packs = f"{home}/{PACKS}".lstrip("/")
        if self._at == packs:
            return []
        (pack, index), before = (self.pack_path, self.index_path), self._at
        self._at = packs
        return [
            *self.moves(pack, index),
            steps.SyncDirectory(packs),
            *([steps.SyncDirectory(before)] if before else []),
        ]

    def moves(self, pack: str, index: str) -> list[Step]:
        """The steps that give both files their present paths; `pack`, `index`: where they were."""
        return [steps.Rename(pack, self.pack_path), steps.Rename(index, self.index_path)]

    def leave(self) -> None:
        """Give up the folder; the pack, when it was published, stays. Never fails: a sweep does the rest."""
        with contextlib.suppress(TransportError):
            if self.path:
                self.above.perform([*self.release(), steps.RemoveDirectory(self.path)])
        with contextlib.suppress(TransportError):
            self._claimed.close()

    def discard(self) -> None:
        """Delete what was written, as far as that works: no root names it and none ever will."""
        places = {self.path, self._at} - {""}
        files = [steps.GetStat(f"{place}/{self.name.hex()}.{suffix}") for place in places for suffix in ("pack", "idx")]
        with contextlib.suppress(TransportError):
            self.above.perform(files)
            self.above.perform([steps.Delete(each.path) for each in files if each.result is not None])
        self.leave()


def remove(folder: Transport, place: str, files: Sequence[str]) -> None:
    """Remove a quarantine with its files, in that order."""
    folder.perform([*[steps.Delete(f"{place}/{name}") for name in files], steps.RemoveDirectory(place)])
