"""Upkeep: packs joined, checkpoints made, leftovers deleted. Nothing here is needed for an answer, and nothing here
drops a revision.

A file in `packs` is deleted only a day after a record dropped it. So a record that names it was published before, and a
writer after it knows. A pack that no record names is dropped when its request is in the entries, or when it joins
others. Any other stays: it may be all that is left of an answered push.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from smartserver.store import cleanup
from smartserver.store import repack as packs
from smartserver.store.draft import following
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.history import CLOCK_MARGIN
from smartserver.store.index_build import Pace, unpaced
from smartserver.store.log import Log
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.quarantine import Quarantine, store_time
from smartserver.store.record import Join, PackEntry, Record
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import State
from smartserver.store.trailer import trailer_of
from transports.base import EntryKind, Transport
from transports.errors import TransportError
from transports.steps import GetStat, ListDirectory

REPACK = b"repack"
"""What the quarantine of a joined pack is named after, where a push has its request."""
KEPT = 24 * 3600
"""Seconds that a dropped pack is kept for those who read an older state, and a leftover for a writer that lives."""

log = logging.getLogger("smartserver")


def repack(
    line: Log,
    snapshot: Snapshot,
    quarantine: Callable[[], Quarantine],
    clock: Callable[[], float],
    *,
    whole: bool = False,
    pace: Pace = unpaced,
) -> State | None:
    """Join the neighbouring packs `repack.plan` names, and give the new state; None where there are none, or another
    changed them meanwhile. `whole`: as many as may be joined, however few there are. `pace`: as `index_build.Pace`.

    Raises:
        OutcomeUnknown: they may have been replaced; both sets of files are there.
        CorruptFile, TransportError: nothing changed.
    """
    span = packs.plan(snapshot.state.packs, whole=whole)
    if span is None:
        return None
    chosen = snapshot.packs[span]
    old = tuple(pack.entry.name for pack in chosen)
    place = quarantine()
    with contextlib.ExitStack() as undo:
        undo.callback(place.discard)
        earlier = snapshot.only(snapshot.packs[: span.start])
        with contextlib.closing(place.create()) as made:
            entry = packs.run(
                made,
                chosen,
                place.name,
                snapshot.state,
                lambda kind, key: earlier.first_row(kind, key) is not None,
                pace,
                put_index=place.put_index,
            )
        line.folder.perform(place.publication())

        def judge(state: State) -> tuple[bytes, State] | None:
            names = tuple(pack.name for pack in state.packs)
            there = any(names[at : at + len(old)] == old for at in range(len(names)))
            if not there or entry.name in state.dropped or not _is_whole(line.folder, entry):
                return None
            return _following(state, clock, joins=(Join(old, entry),))

        kept = undo.pop_all()
        try:
            state = line.append(line.look(), judge).state
        except TransportError:
            kept.close()
            raise
        if entry not in state.packs:
            kept.close()
            return None
    return state


def _is_whole(folder: Transport, entry: PackEntry) -> bool:
    looks = [GetStat(path) for path in (pack_path(entry.name), index_path(entry.name))]
    folder.perform(looks)
    return all(look.result is not None for look in looks)


def _following(
    state: State,
    clock: Callable[[], float],
    *,
    joins: Sequence[Join] = (),
    dropped: Sequence[bytes] = (),
    forgotten: Sequence[bytes] = (),
) -> tuple[bytes, State]:
    record = Record(
        number=state.version + 1,
        parent=state.hash,
        time=int(clock() * 1000),
        joins=tuple(joins),
        dropped=tuple(dropped),
        forgotten=tuple(forgotten),
    )
    return following(state, record)


def checkpoint_if_due(line: Log, randomness: Callable[[int], bytes]) -> None:
    """Make a checkpoint of the newest state where one is due, and clean the log.

    Raises:
        CorruptFile, Unsupported, TransportError: nothing changed.
    """
    since = line.since
    if not cleanup.is_due(since.records, since.size, since.checkpoint):
        return
    head = line.look()
    if head.damage is None:
        line.checkpointed(cleanup.make_checkpoint(line.folder, head.state, randomness))
        cleanup.clean_log(line.folder, randomness)


class PackFile(NamedTuple):
    """A file among the packs."""

    name: bytes
    modified: float
    """When it was last changed, in seconds by the store's clock."""
    size: int


def collect(line: Log, clock: Callable[[], float], randomness: Callable[[int], bytes]) -> int:
    """Delete what dead writers left and what was dropped a day ago; how many files that was.

    Raises:
        CorruptFile, Unsupported, TransportError, OutcomeUnknown: what is live was not touched.
    """
    folder = line.folder
    # Before the state is read: what a record names later was not there, or is young.
    incoming, listed = ListDirectory(INCOMING), ListDirectory(PACKS)
    folder.perform([incoming, listed])
    state, time = line.look().state, int(clock() * 1000)
    expired = [name for name, each in state.dropped.items() if time - each.time >= KEPT * 1000]
    # Dropped by a clock that was ahead: their day begins now.
    again = [name for name, each in state.dropped.items() if each.time > time + CLOCK_MARGIN]
    count = _delete(folder, [path(name) for name in expired for path in (pack_path, index_path)])
    named = {pack.name for pack in state.packs} | set(state.dropped)
    unnamed = [each for each in packs_in(folder, listed.result or ()) if each.name not in named]
    superseded: list[bytes] = []
    lost: list[bytes] = []
    now = store_time(folder, randomness) if incoming.result or unnamed else 0.0
    count += _sweep(folder, incoming.result or (), now)
    for each in unnamed:
        if now - each.modified >= KEPT:
            (superseded if _is_superseded(folder, each, state) else lost).append(each.name)
    if lost:
        log.warning(
            "packs that no record names, which are kept: %d; smartserver recover tells what they are", len(lost)
        )
    dropped = [*again, *superseded]

    def judge(current: State) -> tuple[bytes, State] | None:
        gone = [name for name in expired if name in current.dropped]
        new = set(dropped).difference(pack.name for pack in current.packs)
        return _following(current, clock, dropped=sorted(new), forgotten=gone) if gone or new else None

    if expired or dropped:
        line.append(line.look(), judge)
    return count


def _sweep(folder: Transport, names: Sequence[str], now: float) -> int:
    """Delete what has lain in `incoming` for a day; how many files."""
    looks = [GetStat(f"{INCOMING}/{name}") for name in names]
    folder.perform(looks)
    old = [(each.path, each.result) for each in looks if each.result and now - each.result.modified >= KEPT]
    folders = [ListDirectory(path) for path, stat in old if stat.kind is EntryKind.DIRECTORY]
    folder.perform(folders)
    inside = [f"{each.path}/{name}" for each in folders for name in each.result or ()]
    count = _delete(folder, [*(path for path, stat in old if stat.kind is EntryKind.FILE), *inside])
    for each in folders:  # Records of which another process, or a kill, left the folder they were to be published in.
        with contextlib.suppress(TransportError):
            folder.remove_directory(each.path)
    return count


def packs_in(folder: Transport, names: Sequence[str]) -> list[PackFile]:
    """The packs among the files with these names, as far as they are there."""
    looks = [GetStat(f"{PACKS}/{name}") for name in names if name.endswith(".pack")]
    folder.perform(looks)
    found = []
    for look in looks:
        with contextlib.suppress(ValueError):
            name = bytes.fromhex(look.path.rpartition("/")[2].removesuffix(".pack"))
            if look.result is not None and len(name) == 16:
                found.append(PackFile(name, look.result.modified, look.result.size))
    return found


def _is_superseded(folder: Transport, pack: PackFile, state: State) -> bool:
    """Whether nothing is lost with a pack: it joins packs, or its request was carried out by this or another pack."""
    _, trailer = trailer_of(folder, pack_path(pack.name), pack.size)
    if trailer is None:
        return False
    return trailer.entry is None or state.history.find(trailer.entry.request) is not None


def _delete(folder: Transport, paths: Sequence[str]) -> int:
    """Delete those of these files that are there, which another may do at the same time; how many."""
    looks = [GetStat(path) for path in paths]
    folder.perform(looks)
    count = 0
    for each in looks:
        with contextlib.suppress(TransportError):
            if each.result is not None:
                folder.delete(each.path)
                count += 1
    return count
