"""Repack: joins neighbouring packs, copying their segments unchanged. Their order is kept, and no record is decoded.

Sizes are kept geometric: after a repack each pack is at least twice as large as the next one. So a byte is rewritten
about as often as the repository doubles. Packs of more than 1 GiB are left alone.
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
"""The most packs, not counting those larger than `LARGE`, for which no repack is needed."""
AHEAD = 4
"""The number of packs added during a repack after which the repack stops pausing. In `bench pushes` there were at most
15 packs with 4, and 23 without a bound. Pauses make a repack at least three times as long: 17,000 records took 0.1 s
without, and 0.4 to 1.1 s with pauses; ten million would take ten minutes."""
FEW_PACKS = 6
"""The most packs that a repack leaves, so that the next repack is at least `MOST_PACKS - FEW_PACKS` pushes later."""
LARGE = 1 << 30
"""The bytes of a pack above which it is not joined any more."""
REPACK = b"repack"
"""The bytes that identify the quarantine of a joined pack, in place of the id of a request."""
TURN = f"{PACKS}/joining"
"""The file that a server publishes to take its turn at joining packs."""
LONGEST_TURN = 900
"""Seconds after which a turn expires, so that another server may take its turn."""


def plan(packs: Sequence[PackEntry], *, whole: bool = False) -> slice | None:
    """Choose the neighbouring packs to join now; return None if no packs need to be joined. `whole`: True to join as
    many neighbours as may be joined, however few packs exist."""
    runs = _runs(packs)
    small = sum(stop - start for start, stop in runs)
    if not runs or (small <= MOST_PACKS and not whole):
        return None
    start, stop = max(runs, key=lambda run: (run[1] - run[0], run))
    if stop - start < 2:
        return None  # Each small pack lies between two large ones.
    if whole or stop < len(packs):
        return slice(start, stop)  # A large pack follows, so no pack is added here and it need not be rewritten again.
    room = FEW_PACKS - (small - (stop - start))
    joined = packs[stop - 1].length
    for first in range(stop - 2, start, -1):
        joined += packs[first].length
        if first - start < room and packs[first - 1].length >= 2 * joined:
            return slice(first, stop)
    return slice(start, stop)


def rows(packs: Sequence[PackEntry]) -> int:
    """Return the number of calls of `repack` with `whole` that join all packs which may be joined."""
    return sum(stop - start > 1 for start, stop in _runs(packs))


def _runs(packs: Sequence[PackEntry]) -> list[tuple[int, int]]:
    """Return the half-open ranges of neighbouring packs that are not large."""
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
    """Write neighbouring packs to a quarantine as one new pack with an index, durably, and return its entry.

    The caller moves both files to `packs`, and appends a record if all of `packs` are still side by side. Each pack is
    checked against its hash while it is copied, so damage never gets a valid hash. `state`: the state that names the
    packs, for the trailer. `resolve`: finds records in packs before the first one."""
    header = packs[0].reader.header
    for pack in packs:
        if pack.reader.header != header:
            raise CorruptFile(pack.reader.name, 0, "its kinds of records differ from those of the previous pack")
    segments = sum(pack.entry.segments for pack in packs)
    together = SegmentReader([(pack, pack.reader.first, pack.reader.end) for pack in packs], segments)
    with contextlib.closing(place.pack) as file:
        writer = PackWriter(file, packs[0].reader.kinds)
        for pack in packs:
            for chunk in pack.reader.chunks(together.read):
                writer.append(chunk)
                pace()
            if pack.reader.trailer() != pack.entry.hash:
                raise CorruptFile(
                    pack.reader.name, pack.reader.end, "the hash at its end differs from the one in the log"
                )
        length, digest = writer.finish()
        joined = tuple(pack.entry.name for pack in packs)
        file.write(encode_trailer(Trailer(state.incarnation, state.version, state.hash, None, joined)))
        file.sync()
        index = merge([pack.index for pack in packs], length, digest, resolve, pace)
        return place.put_index(length, digest, index, segments, sum(pack.entry.records for pack in packs))


def cut_out(folder: Transport, joined: PackReader, entry: PackEntry, path: str) -> bool:
    """Restore the pack of `entry` at `path` from the pack into which it was joined. Return False if `joined` lacks any
    of its segments."""
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
    """Join the neighbouring packs that `plan` chooses, and return the new state. Return None if `plan` chooses none,
    another server changed them meanwhile, or it is another server's turn. `whole`: as in `plan`; True also ignores the
    turn."""
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

        moves = place.moves()
        head, kept = line.append_naming(moves, [place.pack_path, place.index_path], judge, undo)
        if entry in head.state.packs:
            return head.state
        if entry.name not in head.state.dropped:
            kept.close()
        return None


@contextlib.contextmanager
def _turn(line: Log) -> Iterator[bool]:
    """Publish the file `TURN`, and yield True if this succeeds: it is then this process's turn to join packs. Two
    concurrent repacks are harmless, but the work of one is wasted. So the turn of a dead process may simply expire."""
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
