"""Upkeep: packs joined, checkpoints made, leftovers deleted. Nothing here is needed for an answer, and nothing here
drops a revision.

A file in `packs` is deleted only a day after a record dropped it. So a record that names it was published before, and a
writer after it knows. A pack that no record names is dropped when its request is in the entries, or when it joins
others. Any other stays: it may be all that is left of an answered push.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import chain
from typing import NamedTuple

from smartserver.store import checkpoint
from smartserver.store import repack as packs
from smartserver.store.format import DERIVED, INCOMING, PACKS
from smartserver.store.history import CLOCK_MARGIN
from smartserver.store.index_build import Pace, unpaced
from smartserver.store.log import Log
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.quarantine import Quarantine, store_time
from smartserver.store.record import Join
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import State, following
from smartserver.store.summaries import summaries_path
from smartserver.store.trailer import trailer_of
from transports.base import Transport
from transports.errors import FileExists, NoSuchFile, TransportError
from transports.steps import Delete, GetStat, ListDirectory, Publish, Put, Withdraw

REPACK = b"repack"
"""The name of the quarantine of a joined pack, where a push has its request."""
TURN = f"{PACKS}/joining"
"""The server that has published this file joins packs."""
LONGEST_TURN = 900
"""Seconds after which another may do so."""
MOST_OVER_LINK = 1 << 20
"""Bytes that a checkpoint may move unasked over a link: a second at 8 Mbit/s, once in 64 changes."""

LARGE = 64 << 10
"""Bytes of a record, of some thousand refs, that are not to be read with each request."""
KEPT = 24 * 3600
"""Seconds that a dropped pack is kept for those who read an older state, and a leftover for a writer that lives."""

log = logging.getLogger("smartserver")


def repack(
    line: Log,
    snapshot: Snapshot,
    quarantine: Callable[[], Quarantine],
    clock: Callable[[], float],
    randomness: Callable[[int], bytes],
    *,
    whole: bool = False,
    pace: Pace = unpaced,
) -> State | None:
    """Join the neighbouring packs `repack.plan` names, and give the new state; None if there are none, or another
    changed them meanwhile, or is at it. `whole`: as many as may be joined, however few there are, whoever is at it."""
    span = packs.plan(snapshot.state.packs, whole=whole)
    if span is None:
        return None
    chosen = snapshot.packs[span]
    old = tuple(pack.entry.name for pack in chosen)
    with contextlib.ExitStack() as turns, contextlib.ExitStack() as undo:
        if not whole and not turns.enter_context(_turn(line.folder, randomness)):
            return None
        place = quarantine()
        undo.callback(place.discard)
        earlier = snapshot.only(snapshot.packs[: span.start])
        entry = packs.run(place, chosen, snapshot.state, earlier.first_row, pace)
        files = [GetStat(path) for path in (pack_path(entry.name), index_path(entry.name))]
        head, is_looked_at = line.look_between(line.known, place.publication(), files)

        def judge(state: State) -> tuple[bytes, State] | None:
            nonlocal files, is_looked_at
            if not is_looked_at:
                files = [GetStat(look.path) for look in files]
                line.folder.perform(files)
            is_looked_at = False  # On another state they are looked at again.
            names = tuple(pack.name for pack in state.packs)
            there = any(names[at : at + len(old)] == old for at in range(len(names)))
            if not there or entry.name in state.dropped or any(look.result is None for look in files):
                return None
            return following(state, clock(), joins=(Join(old, entry),))

        kept = undo.pop_all()
        state = line.append(head, judge).state
        if entry not in state.packs:
            if entry.name not in state.dropped:
                kept.close()
            return None
    return state


@contextlib.contextmanager
def _turn(folder: Transport, randomness: Callable[[int], bytes]) -> Iterator[bool]:
    """True if it is this process's turn to join packs: it has published the file `TURN`. Two at once do no harm, but
    one works for nothing. So the turn of a process that died ends by itself."""
    leave = Withdraw(TURN, f"{INCOMING}/{randomness(8).hex()}.withdrawn")
    temporary, there = f"{INCOMING}/{randomness(8).hex()}.turn", GetStat(TURN)
    folder.perform([there])
    if there.result is not None and store_time(folder, randomness) - there.result.modified >= LONGEST_TURN:
        with contextlib.suppress(NoSuchFile):
            folder.perform([leave])
    try:
        folder.perform([Put(temporary, b"\n"), Publish(temporary, TURN)])
    except FileExists:
        folder.perform([Delete(temporary)])
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(TransportError):
            folder.perform([leave])


def tidy_log(
    line: Log, clock: Callable[[], float], randomness: Callable[[int], bytes], most: int = sys.maxsize
) -> None:
    """Append a record that does nothing if the newest is large, since each look reads the newest. Make a checkpoint if
    one is due, and clean the log, if that moves no more than `most` bytes."""
    if line.since.newest > LARGE:
        newest = line.look()
        if line.since.newest > LARGE:  # Nobody else has done it.
            line.append(newest, lambda state: following(state, clock()) if state.hash == newest.state.hash else None)
    if not checkpoint.is_due(line.since) or line.since.moved > most:
        return
    head = line.look()
    if head.damage is None:
        line.checkpointed(checkpoint.make_checkpoint(line.folder, head.state, randomness))
        checkpoint.clean_log(line.folder, randomness)


class PackFile(NamedTuple):
    """A file among the packs."""

    name: bytes
    modified: float
    """When it was last changed, in seconds by the store's clock."""
    size: int


def collect(line: Log, clock: Callable[[], float], randomness: Callable[[int], bytes], kept: float = KEPT) -> int:
    """Delete leftovers of dead writers and files dropped `kept` seconds ago, fewer if nobody uses them; how many."""
    folder = line.folder
    # Before the state is read: what a record names later was not there, or is young.
    incoming, listed = ListDirectory(INCOMING), ListDirectory(PACKS)
    folder.perform([incoming, listed])
    head = line.look()
    state, time = head.state, int(clock() * 1000)
    expired = [name for name, drop in state.dropped.items() if time - drop.time >= kept * 1000]
    # Dropped by a clock that was ahead: their day begins now.
    again = [name for name, drop in state.dropped.items() if drop.time > time + CLOCK_MARGIN]
    files = {name: [path(name) for path in (pack_path, index_path, summaries_path)] for name in expired}
    deleted = _delete(folder, list(chain.from_iterable(files.values())))
    left = {path for path, is_deleted in deleted.items() if not is_deleted}
    forgotten = [name for name in expired if left.isdisjoint(files[name])]
    named = {pack.name for pack in state.packs} | set(state.dropped)
    unnamed = packs_in(folder, listed.result or (), named)
    derived = _derived_alone(folder, listed.result or (), named)
    now = store_time(folder, randomness) if incoming.result or unnamed or derived else 0.0
    uploads = [GetStat(f"{INCOMING}/{name}") for name in incoming.result or ()]
    folder.perform(uploads)
    leftovers = [look.path for look in (*derived, *uploads) if look.result and now - look.result.modified >= kept]
    deleted |= _delete(folder, leftovers)
    superseded: list[bytes] = []
    lost: list[bytes] = []
    for pack in unnamed:
        if now - pack.modified >= kept:
            (superseded if is_superseded(folder, pack, state) else lost).append(pack.name)
    if lost:
        log.warning(
            "packs that no record names, which are kept: %d; smartserver recover tells what they are", len(lost)
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
    """The packs among the files with these names that are there and not named."""
    looks: dict[bytes, GetStat] = {}
    for file in files:
        with contextlib.suppress(ValueError):
            name = bytes.fromhex(file.removesuffix(".pack"))
            if file.endswith(".pack") and len(name) == 16 and name not in named:
                looks[name] = GetStat(pack_path(name))
    folder.perform(list(looks.values()))
    return [PackFile(name, look.result.modified, look.result.size) for name, look in looks.items() if look.result]


def _derived_alone(folder: Transport, files: Sequence[str], named: Set[bytes]) -> list[GetStat]:
    """Looks at what is derived of packs that were never moved beside it, or are gone."""
    kept = {name.hex() for name in named} | {name.removesuffix(".pack") for name in files if name.endswith(".pack")}
    alone = [name for name in sorted(files) if name.endswith(DERIVED) and name.partition(".")[0] not in kept]
    looks = [GetStat(f"{PACKS}/{name}") for name in alone]
    folder.perform(looks)
    return looks


def is_superseded(folder: Transport, pack: PackFile, state: State) -> bool:
    """Tell whether nothing is lost with a pack: it joins packs, or its request was carried out."""
    _, trailer = trailer_of(folder, pack_path(pack.name), pack.size)
    if trailer is None:
        return False
    return trailer.entry is None or state.history.find(trailer.entry.request) is not None


def _delete(folder: Transport, paths: Sequence[str]) -> dict[str, bool]:
    """Delete files, as another may at the same time; whether each was deleted. A record's file may be a folder."""
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
