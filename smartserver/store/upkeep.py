"""Upkeep: packs joined, leftovers deleted. Nothing here is needed for an answer, and nothing here drops a revision.

A file is deleted only when no root can name it any more: dropped a day ago, or named by no root that was read after the
listing that showed it, and a day old by the storage's own clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.store import repack as packs
from smartserver.store.creation import remains
from smartserver.store.document import Root, milliseconds
from smartserver.store.format import FOLDERS, INCOMING, LOCK, LOG, NAMES, PACKS, TABLES, TEMPORARY
from smartserver.store.index_build import Pace, unpaced
from smartserver.store.quarantine import Quarantine, sweep
from smartserver.store.root import DROPPED_KEPT, RootView, next_root
from smartserver.store.snapshot import Snapshot
from smartserver.store.swap import RootFile
from transports.base import EntryKind, Transport
from transports.errors import NoSuchFile
from transports.steps import Delete, GetStat, ListDirectory

REPACK = b"repack"
PROBE = b"probe"
"""What their quarantines are named after, where a push has its request."""
UNNAMED_KEPT = 24 * 3600
"""Seconds a file that no root names is kept: a push that is about to name it has written it moments ago."""


def repack(
    file: RootFile,
    snapshot: Snapshot,
    quarantine: Callable[[], Quarantine],
    clock: Callable[[], float],
    randomness: Callable[[int], bytes],
    *,
    whole: bool = False,
    pace: Pace = unpaced,
) -> Root | None:
    """Join the neighbouring packs `repack.plan` names, and give the new root; None where there are none, or another
    changed them meanwhile. `whole`: as many as may be joined, however few there are. `pace`: as `index_build.Pace`.

    Raises:
        OutcomeUnknown: they may have been replaced; both sets of files are there.
        CorruptFile, TransportError: nothing changed.
    """
    span = packs.plan(snapshot.root.packs, whole=whole)
    if span is None:
        return None
    chosen = snapshot.packs[span]
    old = tuple(pack.entry for pack in chosen)
    place = quarantine()
    with contextlib.ExitStack() as undo:
        undo.callback(place.discard)
        earlier = Snapshot(snapshot.view, snapshot.packs[: span.start], snapshot.graph, snapshot.texts)
        with contextlib.closing(place.create(sum(each.length for each in old))) as made:
            entry, index = packs.run(
                made, chosen, place.name, lambda kind, key: earlier.first_row(kind, key) is not None, pace
            )
        place.put_index(index)
        with file.swapping(place.publication(file.path)) as swap:
            root = swap.current
            at = next((at for at in range(len(root.packs)) if root.packs[at : at + len(old)] == old), None)
            if at is None:
                return None
            new, files = next_root(
                RootView(root, file.folder, snapshot.view),
                now=clock(),
                packs=(*root.packs[:at], entry, *root.packs[at + len(old) :]),
                dropped=[each.name for each in old],
                randomness=randomness,
            )
            swap.settle(new, files, undo, place.leave)
    place.leave()
    return new


def collect(
    file: RootFile, quarantine: Callable[[], Quarantine], clock: Callable[[], float], randomness: Callable[[int], bytes]
) -> int:
    """Delete what dead writers left and what was dropped a day ago; how many files and folders that was.

    Raises:
        CorruptFile, Unsupported, TransportError, OutcomeUnknown: what is live was not touched.
    """
    folder = file.folder
    # Before the root is read: what a root names later was not there, or is young.
    names = _list(folder, PACKS, TABLES, LOG, INCOMING, LOCK, "")
    listed = [f"{place}/{name}" for place in (PACKS, TABLES, LOG) for name in names[place]]
    half_written = any(name.startswith(TEMPORARY) for name in names[""])
    try:
        root = file.read()
    except NoSuchRepository:
        # What is left where a creation was cut short goes too; the empty folders the next one takes over.
        if not _half_made(names[""]):
            return 0
        left = remains(folder)
        if left is not None:
            raise CorruptFile(left.lost, 0, f"it is gone, and there is {left.found}") from None
        in_folder = _in_folder(folder)
        now = quarantine().time() if in_folder else 0.0
        count = sweep(folder, names[INCOMING], lambda modified: now - modified >= UNNAMED_KEPT, by_age=in_folder)
        return count + len(file.sweep(half_made=True) if half_written else ())
    now = quarantine().time()

    def old(modified: float) -> bool:
        return now - modified >= UNNAMED_KEPT

    count = sweep(folder, names[INCOMING], old, by_age=file.in_folder())
    count += file.lock_folder.sweep(names[LOCK], old) if file.in_folder() else 0
    count += len(file.sweep() if half_written else ())  # Only then is the lock needed.
    view = RootView(root, folder)
    dropped = {each.name: each.time for each in view.dropped()}
    expired = [name for name, time in dropped.items() if milliseconds(clock()) - time >= DROPPED_KEPT]
    gone = {name.hex() for name in expired}
    live = set(_named(root)) | {name.hex() for name in dropped}
    strays = [GetStat(path) for path in listed if _stem(path) not in live]
    folder.perform(strays)
    unnamed = [each.path for each in strays if each.result is not None and old(each.result.modified)]
    count += _delete(folder, [path for path in listed if _stem(path) in gone] + unnamed)
    if expired:
        with file.swapping() as swap:
            new, files = next_root(RootView(swap.current, folder), now=clock(), forget=expired, randomness=randomness)
            swap.replace(new, files)
    return count


def _half_made(names: Sequence[str]) -> bool:
    """Whether a folder with these is one in which a repository was being made, and nothing else."""
    return set(names).issuperset(FOLDERS) and all(name in NAMES or name.startswith(TEMPORARY) for name in names)


def _list(folder: Transport, *places: str) -> dict[str, list[str]]:
    """What is in each of some places; nothing where there is no such folder."""
    asked = [ListDirectory(place) for place in places]
    folder.perform(asked)
    return {each.path: each.result or [] for each in asked}


def _stem(path: str) -> str:
    """The name of a file without folder and ending, as `_named` gives it."""
    return path.partition("/")[2].partition(".")[0]


def _named(root: Root) -> Iterator[str]:
    """The names, without folder and ending, of the files a root names."""
    for pack in root.packs:
        yield pack.name.hex()
    for table in root.tables.values():
        if table.file is not None:
            yield table.file.name.hex()
    for log in root.log_files:
        yield log.path.partition("/")[2]


def _delete(folder: Transport, paths: Sequence[str]) -> int:
    """Delete files, which another may do at the same time; how many were deleted here."""
    left, count = paths, 0
    while left:
        try:
            folder.perform([Delete(path) for path in left])
            return count + len(left)
        except NoSuchFile as wrong:
            # What comes before the one that was not there is deleted.
            count += next((at for at, path in enumerate(left) if f"/{wrong.path}".endswith(f"/{path}")), 0)
            looks = [GetStat(path) for path in left]
            folder.perform(looks)
            there = [each.path for each in looks if each.result is not None]
            if len(there) == len(left):
                raise
            left = there
    return count


def _in_folder(folder: Transport) -> bool:
    """Whether the repository that was being made here was to have a lock folder."""
    try:
        return folder.stat(LOCK).kind is EntryKind.DIRECTORY
    except NoSuchFile:
        return False
