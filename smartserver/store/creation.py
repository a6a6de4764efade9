"""The making of a repository: where it may be made, its folders, and the tombstone that holds its place.

What is there already is never written over. No pack, table or log file is ever there without a root: so what a creation
leaves that is cut short may be made anew, and what a repository leaves that lost its root may not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from smartserver.errors import InvalidPath, NestedRepository, Unsupported
from smartserver.records.model import Kind
from smartserver.store.document import decode_root
from smartserver.store.format import (
    FOLDERS,
    FORMAT,
    INCOMING,
    LOCK,
    LOG,
    NAMES,
    PACKS,
    ROOT,
    SPOKEN,
    TABLES,
    TEMPORARY,
    recognise,
)
from smartserver.store.swap import RootFile
from transports.base import Capability, EntryKind, Transport
from transports.errors import CodedError, FileExists, NoSuchFile, NotADirectory, TransportError, TransportFailed

TRIES = 8
"""Times a creation begins anew because one that was given up took its folders away."""


class Creation:
    """The making of one repository: `prepare` and `hold_place`, then the swap is the caller's; or `undo`."""

    def __init__(self, file: RootFile) -> None:
        self._file = file
        self._made: list[str] = []

    def prepare(self) -> None:
        """Make the repository's folders, all durable; half-made ones are taken over. Without a root it is none yet.

        Raises:
            NestedRepository: it would lie inside another one.
            InvalidPath: the folder holds something else, or what is left of a repository.
            Unsupported: the store cannot lock.
            TransportError: the store failed.
        """
        above, path, folder = self._file.above, self._file.path, self._file.folder
        if not folder.capabilities & Capability.LOCK:
            raise Unsupported("a new repository on a store without file locks", SPOKEN)
        places = _places(path)
        file = _file_in_the_way(above, path)
        if file is not None:
            raise InvalidPath(path, "a file is there" if file == path else f"{file!r} is a file")
        for place in places[:-1]:
            if _holds_repository(above, place):
                raise NestedRepository(path, place)
            foreign = recognise(above.child(place)) if place else None
            if foreign is not None:
                raise InvalidPath(path, f"{place!r} is {foreign}: nothing is made inside it")
        for place in places[1:]:
            self._make(place)
            if not above.exists(place):
                raise InvalidPath(path, f"{place!r} is a link that leads nowhere")
        other = recognise(folder)
        if other is not None:
            raise InvalidPath(path, f"{other} is there")
        for name in folder.list_directory(""):
            if name not in NAMES and not name.startswith(TEMPORARY):
                raise InvalidPath(path, f"the folder holds {name!r}, which belongs to no repository")
        left = remains(folder)
        if left is not None:
            raise InvalidPath(path, f"the folder holds {left}: restore that file, or move the folder away")
        self._make_folders()
        # Also what another process made: it may have crashed before it synced.
        for place in places[::-1]:
            above.sync_directory(place)

    def hold_place(self, vcs: str, kinds: Sequence[Kind]) -> None:
        """`prepare`, and where there is no root put an empty tombstone, durably: only then may there be packs.

        Who finds a root, be it a tombstone, has waited for the one who wrote it to sync it.

        Raises:
            NestedRepository, InvalidPath, Unsupported: as `prepare`.
            CorruptFile: a root is there, and damaged.
            Locked: another writer holds the lock and does not let go of it.
            TransportError: the store failed; there is no repository, as before.
        """
        for _ in range(TRIES):
            self.prepare()
            with contextlib.suppress(NoSuchFile, NotADirectory), self._file.locked():
                self._make_folders()  # Who gave up a creation of it took them away meanwhile.
                self._file.begin(vcs, kinds)
                self._made.clear()
                return
        raise TransportFailed(self._file.path, f"its folders were taken away {TRIES} times while it was made")

    def undo(self) -> None:
        """Take away the folders that were made here, as far as nobody uses them; undoing twice is harmless."""
        made, self._made = self._made, []
        if not made:
            return
        folder, own = self._file.folder, [self._below(name) for name in FOLDERS]
        with contextlib.suppress(TransportError):
            with folder.try_lock(LOCK) as mine:
                if not mine or folder.exists(FORMAT):
                    return
                # The quarantines' folder first: it is empty only while nobody else is making this repository.
                for place in sorted(set(own) & set(made), key=lambda place: place != self._below(INCOMING)):
                    self._file.above.remove_directory(place)
                folder.delete(LOCK)
            for place in sorted(set(made) - set(own), key=len, reverse=True):
                self._file.above.remove_directory(place)

    def _make_folders(self) -> None:
        for name in FOLDERS:
            self._make(self._below(name))

    def _make(self, place: str) -> None:
        with contextlib.suppress(FileExists):
            self._file.above.make_directory(place)
            self._made.append(place)

    def _below(self, name: str) -> str:
        return f"{self._file.path}/{name}" if self._file.path else name


class Remains(NamedTuple):
    """What is left of a repository."""

    found: str
    lost: str
    """The name of the file that is not there."""

    def __str__(self) -> str:
        return f"{self.found} and no {self.lost!r}"


def instead(above: Transport, path: str) -> str:
    """What lies where no repository is, for a message; empty where that is nothing, or cannot be told."""
    try:
        file = _file_in_the_way(above, path)
        if file is not None:
            return "a file" if file == path else f"a file at {file!r}"
        folder = above.child(path) if path else above
        left = remains(folder)
        return recognise(folder) or ("" if left is None else f"what is left of one: {left}")
    except TransportError:
        return ""


def remains(folder: Transport) -> Remains | None:
    """What says that there was a repository, which has lost its root or its format; None where nothing does.

    No repository is ever made over one: its packs may be all there is.

    Raises:
        TransportError: the store failed.
    """
    # Listed before the root is looked for: a creation that is going on writes it first.
    kept = next((place for place in (PACKS, LOG, TABLES) if _holds_files(folder, place)), "")
    if folder.exists(ROOT):
        # With a format it is a whole one, some of whose folders were taken away.
        return None if folder.exists(FORMAT) else Remains("a root", FORMAT)
    return Remains(f"{kept!r} files", ROOT) if kept else None


def _places(path: str) -> list[str]:
    """The folders on the way to the repository's, the store's own first, and its own."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _file_in_the_way(above: Transport, path: str) -> str | None:
    """The first of the places that is there and is no folder."""
    for place in _places(path)[1:]:
        try:
            if above.stat(place).kind is not EntryKind.DIRECTORY:
                return place
        except NoSuchFile:
            break
    return None


def _holds_files(folder: Transport, place: str) -> bool:
    try:
        return bool(folder.list_directory(place))
    except (NoSuchFile, NotADirectory):
        return False


def _holds_repository(above: Transport, place: str) -> bool:
    """Whether a repository is there: a deleted one is none, one whose root cannot be read is one."""
    folder = above.child(place) if place else above
    try:
        content = folder.get(ROOT)
    except (NoSuchFile, NotADirectory):
        return False
    try:
        return folder.exists(FORMAT) and not decode_root(content).deleted
    except CodedError:
        return True
