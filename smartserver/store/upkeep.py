"""Upkeep: packs joined, leftovers deleted. Nothing here is needed for an answer, and nothing here drops a revision.

A file is deleted only with a proof that nothing is lost with it: the root has listed it as dropped for a day, or it is
a superseded stray (`strays`). Other strays are moved to `lost/` when they are a day old by the store's own clock. Both
are done under the lock, so that a writer that holds it keeps what it is about to name.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.store import recovery, strays
from smartserver.store import repack as packs
from smartserver.store.document import Root, milliseconds
from smartserver.store.format import FOLDERS, INCOMING, LOCK, LOG, LOST, NAMES, PACKS, TABLES, TEMPORARY
from smartserver.store.index_build import Pace, unpaced
from smartserver.store.quarantine import Quarantine
from smartserver.store.remains import remains
from smartserver.store.root import DROPPED_KEPT, RootView, next_root
from smartserver.store.snapshot import Snapshot
from smartserver.store.swap import RootFile
from smartserver.store.swap_log import CLOCK_MARGIN
from transports.base import Transport
from transports.errors import FileExists, NoSuchFile
from transports.steps import Delete, GetStat, ListDirectory, MakeDirectory

REPACK = b"repack"
PROBE = b"probe"
"""What their quarantines are named after, where a push has its request."""
UNNAMED_KEPT = 24 * 3600
"""Seconds until a file that no root names is moved to `lost/`: a push that is about to name it wrote it moments ago."""

log = logging.getLogger("smartserver")


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
    if not whole and len(snapshot.packs) < packs.BEHIND and file.publisher.is_at_work(REPACK):
        return None  # It is left to another process, as long as there are not too many.
    chosen = snapshot.packs[span]
    old = tuple(pack.entry for pack in chosen)
    place = quarantine()
    with contextlib.ExitStack() as undo:
        undo.callback(place.discard)
        earlier = Snapshot(snapshot.view, snapshot.packs[: span.start], snapshot.graph, snapshot.texts)
        with contextlib.closing(place.create()) as made:
            entry = packs.run(
                made,
                chosen,
                place.name,
                snapshot.root.incarnation,
                lambda kind, key: earlier.first_row(kind, key) is not None,
                pace,
                put_index=place.put_index,
            )
        publication = place.publication(file.path)
        with file.swapping(publication, [place.pack_path, place.index_path]) as swap:
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
            ).finish()
            swap.replace_with_pack(new, files, undo, place.leave)
    place.leave()
    return new


def collect(
    file: RootFile, quarantine: Callable[[], Quarantine], clock: Callable[[], float], randomness: Callable[[int], bytes]
) -> int:
    """Delete what dead writers left and what was dropped a day ago, move what is neither to `lost/`; how many files and
    folders that was.

    Raises:
        CorruptFile, Unsupported, TransportError, OutcomeUnknown: what is live was not touched.
    """
    folder = file.folder
    now = functools.cache(lambda: quarantine().time())

    def old(modified: float) -> bool:
        return now() - modified >= UNNAMED_KEPT

    # Before the root is read: what a root names later was not there, or is young.
    names = _list(folder, PACKS, TABLES, LOG, INCOMING, LOCK, "")
    listed = [f"{place}/{name}" for place in (PACKS, TABLES, LOG) for name in names[place]]
    half_written = any(name.startswith(TEMPORARY) for name in names[""])
    try:
        root = file.read()
    except NoSuchRepository:
        # The leftovers of an interrupted creation are deleted too; the next one uses the empty folders.
        if not _half_made(names[""]):
            return 0
        left = remains(folder)
        if left is not None:
            raise CorruptFile(left.lost, 0, f"it is gone, and there is {left.found}") from None
        count = file.half_made().sweep(names[INCOMING], (), old)
        return count + len(file.sweep(half_made=True) if half_written else ())
    with contextlib.suppress(FileExists):
        folder.perform(
            [MakeDirectory(name) for name in FOLDERS if name not in names[""]]
        )  # A copy may lack empty ones.
    count = file.publisher.sweep(names[INCOMING], names[LOCK], old)
    count += len(file.sweep() if half_written else ())  # Only then is the lock needed.
    view = RootView(root, folder)
    dropped = view.dropped()
    time = milliseconds(clock())
    expired = {each.name for each in dropped if time - each.time >= DROPPED_KEPT}
    # Dropped by a clock that was ahead: their day begins now.
    ahead = {each.name for each in dropped if each.time > time + CLOCK_MARGIN}
    snapshot = functools.cache(lambda: Snapshot.open(folder, root))
    found = strays.find(folder, listed, root, {each.name for each in dropped})
    if not root.deleted and not all(strays.is_logged(each, view) for each in found):
        _tell_of_lost(file)
    proved, lost = [], []
    for each in found:
        if each.is_intent or old(each.modified):
            if strays.is_superseded(each, view, snapshot):
                proved.append(each)
            elif old(each.modified) and not strays.is_logged(each, view):
                lost.append(each)
    if not (expired or ahead or proved or lost):
        return count
    with file.swapping() as swap:
        current = RootView(swap.current, folder)
        if not _follows(current, view):
            return count  # An older root was put back meanwhile: nothing is proved any more.
        expired &= {each.name for each in current.dropped()}
        kept = strays.named(current.root)
        if expired or ahead:
            # What the log in the root says must be in a file before the packs go that say it too.
            draft = next_root(
                current,
                now=clock(),
                forget=list(expired),
                dropped=list(ahead - expired),
                fold_log=bool(expired),
                randomness=randomness,
            )
            swap.replace(*draft.finish())
        gone = {name.hex() for name in expired}
        paths = [path for path in listed if strays.hex_name(path) in gone]
        paths += [path for each in proved if strays.stem(each.paths[0]) not in kept for path in each.paths]
        count += _delete(folder, paths)
        moved = [path for each in lost if strays.stem(each.paths[0]) not in kept for path in each.paths]
        if moved:
            strays.move_to_lost(folder, moved)
            log.warning(
                "%s: files that its root does not name, moved to %s: %d; smartserver recover tells what they are",
                file.path or ".",
                LOST,
                len(moved),
            )
    return count + len(moved)


def _tell_of_lost(file: RootFile) -> None:
    """Log that there are changes that were made and that the root does not know."""
    made = sum(change.made and not change.elsewhere for change in recovery.find(file).changes)
    if made:
        why = "an older root was put back? smartserver recover lists and restores them"
        log.warning("%s: changes that were made and that its root does not know: %d; %s", file.path or ".", made, why)


def _follows(now: RootView, before: RootView) -> bool:
    """Whether a root is an earlier one or made from that."""
    old = before.root
    return (
        (now.root.incarnation, now.root.deleted) == (old.incarnation, old.deleted)
        and now.root.log_from <= old.version <= now.root.version
        and now.mark(old.version) == before.mark(old.version)
    )


def _half_made(names: Sequence[str]) -> bool:
    """Whether a folder with these is one in which a repository was being made, and nothing else."""
    return set(names).issuperset(FOLDERS) and all(name in NAMES or name.startswith(TEMPORARY) for name in names)


def _list(folder: Transport, *places: str) -> dict[str, list[str]]:
    """What is in each of some places; nothing where there is no such folder."""
    asked = [ListDirectory(place) for place in places]
    folder.perform(asked)
    return {each.path: each.result or [] for each in asked}


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
