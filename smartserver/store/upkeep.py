"""Upkeep: writes checkpoints and deletes leftovers. No answer depends on it, and it never drops a revision.

A pack is deleted only a day after a record dropped it. So any record that names the pack was published before, and
later writers know that it is dropped. A pack that no record names is dropped if its request is in the history, or if
it is a day old and its trailer has no request, as after a repack. Any other unnamed pack stays: it may be all that is
left of an answered push.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Sequence, Set
from itertools import chain
from typing import NamedTuple

from smartserver.store import checkpoint
from smartserver.store.format import DERIVED, INCOMING, PACKS
from smartserver.store.history import CLOCK_MARGIN
from smartserver.store.log import Log
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.quarantine import store_time
from smartserver.store.state import State, following
from smartserver.store.summaries import summaries_path
from smartserver.store.trailer import trailer_of
from transports.base import Transport
from transports.errors import NoSuchFile, TransportError
from transports.steps import GetStat, ListDirectory, Withdraw

MOST_OVER_LINK = 1 << 20
"""The most bytes that writing a checkpoint after a change may transfer to a remote store: a second at 8 Mbit/s, once in
64 changes."""

LARGE = 64 << 10
"""The bytes (of some thousand refs) above which a record should not stay the newest, because each look reads the newest
record."""
KEPT = 24 * 3600
"""Seconds for which a dropped pack is kept for readers of an older state, and a leftover for a writer that still
runs."""

log = logging.getLogger("smartserver")


def tidy_log(line: Log, clock: Callable[[], float], most: int = sys.maxsize) -> None:
    """If the newest record is large, append a record that does nothing, because each look reads the newest record. If a
    checkpoint is due and transfers at most `most` bytes, write it and clean the log."""
    if line.since.newest > LARGE:
        newest = line.look()
        if line.since.newest > LARGE:  # No other process has done so.
            line.append(newest, lambda state: following(state, clock()) if state.hash == newest.state.hash else None)
    if not checkpoint.is_due(line.since) or line.since.moved > most:
        return
    head = line.look()
    if head.damage is None:
        line.checkpointed(checkpoint.make_checkpoint(line.folder, head.state, line.randomness))
        checkpoint.clean_log(line.folder, line.randomness)


class PackFile(NamedTuple):
    """A pack file in `packs`."""

    name: bytes
    modified: float
    """The time of its last change, in seconds by the store's clock."""
    size: int


def collect(line: Log, clock: Callable[[], float], kept: float = KEPT) -> int:
    """Delete leftovers of dead writers, and files that were dropped at least `kept` seconds ago. Return the number of
    deleted files. `kept` may be less than a day only if no process uses these files."""
    folder = line.folder
    # Listed before the state is read: a file that a later record names was not listed, or is young.
    incoming, listed = ListDirectory(INCOMING), ListDirectory(PACKS)
    folder.perform([incoming, listed])
    head = line.look()
    state, time = head.state, int(clock() * 1000)
    expired = [name for name, drop in state.dropped.items() if time - drop.time >= kept * 1000]
    # These were dropped by a clock that was ahead: their day begins now.
    again = [name for name, drop in state.dropped.items() if drop.time > time + CLOCK_MARGIN]
    files = {name: [path(name) for path in (pack_path, index_path, summaries_path)] for name in expired}
    deleted = _delete(folder, list(chain.from_iterable(files.values())))
    left = {path for path, is_deleted in deleted.items() if not is_deleted}
    forgotten = [name for name in expired if left.isdisjoint(files[name])]
    named = {pack.name for pack in state.packs} | set(state.dropped)
    unnamed = packs_in(folder, listed.result or (), named)
    derived = _derived_alone(folder, listed.result or (), named)
    now = store_time(folder, line.randomness) if incoming.result or unnamed or derived else 0.0
    uploads = [GetStat(f"{INCOMING}/{name}") for name in incoming.result or ()]
    folder.perform(uploads)
    leftovers = [look.path for look in (*derived, *uploads) if look.result and now - look.result.modified >= kept]
    deleted |= _delete(folder, leftovers)
    superseded: list[bytes] = []
    lost: list[bytes] = []
    for pack in unnamed:
        is_old = now - pack.modified >= kept
        if is_superseded(folder, pack, state, is_old=is_old):
            superseded.append(pack.name)
        elif is_old:
            lost.append(pack.name)
    if lost:
        log.warning(
            "packs that no change in the log uses, kept: %d; `smartserver recover --list` shows what they are",
            len(lost),
        )
    dropped = [*again, *superseded]

    def judge(current: State) -> tuple[bytes, State] | None:
        gone = [name for name in forgotten if name in current.dropped]
        new = set(dropped).difference(pack.name for pack in current.packs)
        return following(current, clock(), dropped=sorted(new), forgotten=gone) if gone or new else None

    if forgotten or dropped:
        line.append(head, judge)
    return sum(deleted.values())


def packs_in(folder: Transport, files: Sequence[str], named: Set[bytes] = frozenset()) -> list[PackFile]:
    """Return the packs among the `files`, names in the folder `packs`. Packs in `named`, and packs that were deleted
    meanwhile, are left out."""
    looks: dict[bytes, GetStat] = {}
    for file in files:
        with contextlib.suppress(ValueError):
            name = bytes.fromhex(file.removesuffix(".pack"))
            if file.endswith(".pack") and len(name) == 16 and name not in named:
                looks[name] = GetStat(pack_path(name))
    folder.perform(list(looks.values()))
    return [PackFile(name, look.result.modified, look.result.size) for name, look in looks.items() if look.result]


def _derived_alone(folder: Transport, files: Sequence[str], named: Set[bytes]) -> list[GetStat]:
    """Return performed steps for the indexes and summaries among the `files` whose pack is missing. `named`: packs
    whose files are left out."""
    kept = {name.hex() for name in named} | {name.removesuffix(".pack") for name in files if name.endswith(".pack")}
    alone = [name for name in sorted(files) if name.endswith(DERIVED) and name.partition(".")[0] not in kept]
    looks = [GetStat(f"{PACKS}/{name}") for name in alone]
    folder.perform(looks)
    return looks


def is_superseded(folder: Transport, pack: PackFile, state: State, *, is_old: bool = True) -> bool:
    """Tell whether a pack that no state names can be dropped without loss: its request was carried out, or it
    `is_old` and a repack or prune wrote it, which then no longer runs. The requests of young packs are also searched
    for, because the history forgets them after a day."""
    trailer = None
    with contextlib.suppress(NoSuchFile):  # Its change was refused meanwhile.
        _, trailer = trailer_of(folder, pack_path(pack.name), pack.size)
    if trailer is None:
        return False
    return is_old if trailer.entry is None else state.history.find(trailer.entry.request) is not None


def _delete(folder: Transport, paths: Sequence[str]) -> dict[str, bool]:
    """Delete files, which another process may do at the same time. Return for each existing file, by path, True if it
    is deleted now. A published file may be a folder (`Transport.withdraw`)."""
    looks = [GetStat(path) for path in paths]
    folder.perform(looks)
    steps = [Withdraw(path, f"{INCOMING}/{path.rpartition('/')[2]}.gone") for path in paths]
    there = [step for step, look in zip(steps, looks, strict=True) if look.result is not None]
    try:
        folder.perform(there)
        return dict.fromkeys((step.path for step in there), True)
    except TransportError:
        return {step.path: _is_deleted(folder, step) for step in there}


def _is_deleted(folder: Transport, step: Withdraw) -> bool:
    try:
        step.do(folder)
    except TransportError as error:
        return isinstance(error, NoSuchFile)
    return True
