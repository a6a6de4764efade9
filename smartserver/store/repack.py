"""Fewer packs: neighbours joined segment by segment, as they lie. Order never changes, nothing is dropped or decoded.

Sizes are kept geometric: after a repack each pack is at least twice what follows it, so a byte is written anew about as
often as the repository doubles. Packs of more than 1 GiB are left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from smartserver.errors import CorruptFile
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.index_build import Pace, Resolve, merge, nowhere, unpaced
from smartserver.store.log import Log
from smartserver.store.open_pack import OpenPack, SegmentReader
from smartserver.store.pack import MovedPack, PackReader, PackWriter
from smartserver.store.quarantine import Quarantine, store_time
from smartserver.store.record import Join, PackEntry
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import State, following
from smartserver.store.trailer import Trailer, encode_trailer
from transports.base import Transport
from transports.errors import FileExists, NoSuchFile, TransportError
from transports.steps import Delete, GetStat, Publish, Put, Withdraw

MOST_PACKS = 12
"""Packs that may lie about, those of more than `LARGE` apart, before any is rewritten."""
AHEAD = 4
"""Packs that may come while others are joined at a slow pace, before that is left: with as many no more than 15 packs
were seen in `bench pushes`, without a bound 23 (doc/performance.md). That pace takes three times as long as
none: 17,000 records took 0.1 s and 0.4 to 1.1 s, ten million would take ten minutes."""
FEW_PACKS = 6
"""Packs a repack leaves at most: the next one is then this many pushes off at least, `MOST_PACKS` less this."""
LARGE = 1 << 30
"""Bytes of a pack that is left alone."""
REPACK = b"repack"
"""The name of the quarantine of a joined pack, where a push has its request."""
TURN = f"{PACKS}/joining"
"""The server that has published this file joins packs."""
LONGEST_TURN = 900
"""Seconds after which another may do so."""


def plan(packs: Sequence[PackEntry], *, whole: bool = False) -> slice | None:
    """The neighbours to be joined now, or None: there are few enough. `whole`: all that may be, however few."""
    runs = _runs(packs)
    small = sum(stop - start for start, stop in runs)
    if not runs or (small <= MOST_PACKS and not whole):
        return None
    start, stop = max(runs, key=lambda run: (run[1] - run[0], run))
    if stop - start < 2:
        return None  # Each lies between two large ones.
    if whole or stop < len(packs):
        return slice(start, stop)  # It will never grow again, so it need not be rewritten again.
    room = FEW_PACKS - (small - (stop - start))
    joined = packs[stop - 1].length
    for first in range(stop - 2, start, -1):
        joined += packs[first].length
        if first - start < room and packs[first - 1].length >= 2 * joined:
            return slice(first, stop)
    return slice(start, stop)


def rows(packs: Sequence[PackEntry]) -> int:
    """The number of repacks of the whole that join all that may be joined."""
    return sum(stop - start > 1 for start, stop in _runs(packs))


def _runs(packs: Sequence[PackEntry]) -> list[tuple[int, int]]:
    """Half-open ranges of neighbours that are not large."""
    runs: list[tuple[int, int]] = []
    for at, pack in enumerate(packs):
        if pack.length > LARGE:
            continue
        if runs and runs[-1][1] == at:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return runs


def run(
    place: Quarantine, packs: Sequence[OpenPack], state: State, resolve: Resolve = nowhere, pace: Pace = unpaced
) -> PackEntry:
    """Write neighbouring packs to a quarantine as one new pack, durably, and its index; the entry of a record for them.
    The caller puts both among the packs, and appends a record if all of `packs` are still side by side. Each pack is
    checked against its hash on the way: damage never gets a new trailer. `state`: that names the packs, for the
    trailer. `resolve`: finds records in packs before
    the first one."""
    header = packs[0].reader.header
    for pack in packs:
        if pack.reader.header != header:
            raise CorruptFile(pack.reader.name, 0, "its kinds are not those of the pack before it")
    segments = sum(pack.entry.segments for pack in packs)
    together = SegmentReader([(pack, pack.reader.first, pack.reader.end) for pack in packs], segments)
    with contextlib.closing(place.pack) as file:
        writer = PackWriter(file, packs[0].reader.kinds)
        for pack in packs:
            for chunk in pack.reader.chunks(together.read):
                writer.append(chunk)
                pace()
            if pack.reader.trailer() != pack.entry.hash:
                raise CorruptFile(pack.reader.name, pack.reader.end, "does not end with the hash the log names")
        length, digest = writer.finish()
        joined = tuple(pack.entry.name for pack in packs)
        file.write(encode_trailer(Trailer(state.incarnation, state.version, state.hash, None, joined)))
        file.sync()
        index = merge([pack.index for pack in packs], length, digest, resolve, pace)
        return place.put_index(length, digest, index, segments, sum(pack.entry.records for pack in packs))


def cut_out(folder: Transport, joined: PackReader, entry: PackEntry, path: str) -> bool:
    """Write a pack that was joined with others, as it was, from the joined one; False where that has not all of it."""
    offsets = [offset for offset, _ in joined.segments()]
    ends = {*offsets, joined.end}
    places = [MovedPack(joined, offset - joined.first, entry.length, entry.hash, path) for offset in offsets]
    found = next((place for place in places if place.end + place.shift in ends and place.is_whole()), None)
    if found is None:
        return False
    with contextlib.closing(folder.create(path)) as file:
        writer = PackWriter(file, joined.kinds)
        for chunk in found.chunks():
            writer.append(chunk)
        writer.finish()
        file.sync()
    return True


def repack(
    line: Log,
    snapshot: Snapshot,
    quarantine: Callable[[], Quarantine],
    clock: Callable[[], float],
    *,
    whole: bool = False,
    pace: Pace = unpaced,
) -> State | None:
    """Join the neighbouring packs that `plan` names, and give the new state; None if there are none, or another changed
    them meanwhile, or is at it. `whole`: as many as may be joined, however few there are, whoever is at it."""
    span = plan(snapshot.state.packs, whole=whole)
    if span is None:
        return None
    chosen = snapshot.packs[span]
    old = tuple(pack.entry.name for pack in chosen)
    with contextlib.ExitStack() as turns, contextlib.ExitStack() as undo:
        if not whole and not turns.enter_context(_turn(line)):
            return None
        place = quarantine()
        undo.callback(place.discard)
        entry = run(place, chosen, snapshot.state, snapshot.only(snapshot.packs[: span.start]).first_row, pace)

        def judge(state: State) -> tuple[bytes, State] | None:
            names = tuple(pack.name for pack in state.packs)
            there = any(names[at : at + len(old)] == old for at in range(len(names)))
            if not there or entry.name in state.dropped:
                return None
            return following(state, clock(), joins=(Join(old, entry),))

        moves = place.publication()
        head, kept = line.append_naming(moves, [place.pack_path, place.index_path], judge, undo)
        if entry in head.state.packs:
            return head.state
        if entry.name not in head.state.dropped:
            kept.close()
        return None


@contextlib.contextmanager
def _turn(line: Log) -> Iterator[bool]:
    """True if it is this process's turn to join packs: it has published the file `TURN`. Two at once do no harm, but
    one works for nothing. So the turn of a process that died ends by itself."""
    folder, stem = line.folder, f"{INCOMING}/{line.randomness(8).hex()}"
    leave, temporary, there = Withdraw(TURN, f"{stem}.withdrawn"), f"{stem}.turn", GetStat(TURN)
    folder.perform([there])
    if there.result is not None and store_time(folder, line.randomness) - there.result.modified >= LONGEST_TURN:
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
