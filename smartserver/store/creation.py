"""Where a repository may be made: the looks before it, and its folders. What is there already is never written over."""

from __future__ import annotations

import contextlib

from smartserver.errors import InvalidPath, NestedRepository, Unsupported
from smartserver.store.format import FOLDERS, FORMAT, LOG, NAMES, PACKS, ROOT, SPOKEN, TABLES, TEMPORARY, recognise
from transports.base import Capability, EntryKind, Transport
from transports.errors import FileExists, NoSuchFile, NotADirectory, TransportError


def prepare(above: Transport, path: str) -> None:
    """Make the folders of a repository, all durable; half-made ones are taken over. Without a root it is none yet.

    Raises:
        NestedRepository: it would lie inside another one.
        InvalidPath: the folder holds something else, or what is left of a repository.
        Unsupported: the store cannot lock.
    """
    folder = _folder(above, path)
    if not folder.capabilities & Capability.LOCK:
        raise Unsupported("a new repository on a store without file locks", SPOKEN)
    places = _places(path)
    file = _file_in_the_way(above, path)
    if file is not None:
        raise InvalidPath(path, "a file is there" if file == path else f"{file!r} is a file")
    for place in places[:-1]:
        prefix = f"{place}/" if place else ""
        if above.exists(prefix + ROOT) and above.exists(prefix + FORMAT):
            raise NestedRepository(path, place)
        foreign = recognise(above.child(place)) if place else None
        if foreign is not None:
            raise InvalidPath(path, f"{place!r} is {foreign}: nothing is made inside it")
    for place in places[1:]:
        _ensure_folder(above, place)
        if not above.exists(place):
            raise InvalidPath(path, f"{place!r} is a link that leads nowhere")
    other = recognise(folder)
    if other is not None:
        raise InvalidPath(path, f"{other} is there")
    for name in folder.list_directory(""):
        if name not in NAMES and not name.startswith(TEMPORARY):
            raise InvalidPath(path, f"the folder holds {name!r}, which belongs to no repository")
    left = remains(folder)
    if left:
        raise InvalidPath(path, f"the folder holds {left}: restore that file, or move the folder away")
    for name in FOLDERS:
        _ensure_folder(folder, name)
    # Also what another process made: it may have crashed before it synced.
    for place in places[::-1]:
        above.sync_directory(place)


def instead(above: Transport, path: str) -> str:
    """What lies where no repository is, for a message; empty where that is nothing, or cannot be told."""
    try:
        file = _file_in_the_way(above, path)
        if file is not None:
            return "a file" if file == path else f"a file at {file!r}"
        folder = _folder(above, path)
        left = remains(folder)
        return recognise(folder) or (f"what is left of one: {left}" if left else "")
    except TransportError:
        return ""


def remains(folder: Transport) -> str:
    """What says that there was a repository, which has lost its root or its format; empty where nothing does.

    No repository is ever made over one: its packs may be all there is. A creation that was killed, or is going on, has
    none of it: `RootFile.hold_place` sees to it.
    """
    # Listed before the root is looked for: a creation that is going on writes it first.
    kept = next((place for place in (PACKS, LOG, TABLES) if _holds_files(folder, place)), "")
    if folder.exists(ROOT):
        # With a format it is a whole one, some of whose folders were taken away.
        return "" if folder.exists(FORMAT) else f"a root and no {FORMAT!r}"
    return f"{kept!r} files and no {ROOT!r}" if kept else ""


def _folder(above: Transport, path: str) -> Transport:
    return above.child(path) if path else above


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


def _ensure_folder(transport: Transport, path: str) -> None:
    with contextlib.suppress(FileExists):
        transport.make_directory(path)
