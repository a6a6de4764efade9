"""Writes the file of summaries of a pack, from its records or from the summaries of the packs joined in it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

from smartserver.errors import Unsupported
from smartserver.records.browse import Contents
from smartserver.records.content import ReadScope
from smartserver.records.system import system_of
from smartserver.store.allowance import Allowance
from smartserver.store.browse import row_of, rows_of
from smartserver.store.caches import Block
from smartserver.store.content import SnapshotView
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.index_build import Pace, unpaced
from smartserver.store.record import PackEntry
from smartserver.store.remote import is_remote
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import State
from smartserver.store.summaries import BITS, BLOCK, LEAST, Summaries, encode_summaries, summaries_path
from transports.base import Transport
from transports.errors import TransportError
from transports.steps import Delete, Rename, SyncDirectory


class Summariser:
    """Reads the rows of a log for the revisions of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Prepare to read the snapshot.

        Raises:
            Unsupported: the system has no log.
        """
        self._snapshot = snapshot
        state, system = snapshot.state, system_of(snapshot.state.vcs)
        self._view = SnapshotView(state.refs, state.map, snapshot, Allowance(limited=False))
        self._contents: Contents = system.contents(self._view, ReadScope())
        self._changes = not system.ghosts  # With ghosts, the changes depend on which other revisions are stored.

    @property
    def columns(self) -> int:
        """The number of columns of each block, as in `encode_summaries`."""
        return 3 if self._changes else 2

    def blocks(self, packs: range, pace: Pace) -> Iterator[Block]:
        """Yield the rows of neighbouring packs in blocks, as for one pack into which they are joined."""
        parts = self._snapshot.graph.parts
        last = parts[packs[-1]]
        ordinals = _paced(range(parts[packs[0]].first, last.first + last.count), pace)
        rows = rows_of(self._view, self._contents, ordinals, changes=self._changes)
        while block := tuple(itertools.islice(rows, BLOCK)):
            yield block

    def differing(self, number: int, file: Summaries) -> int | None:
        """Read all summaries of a pack. Return the number of the first block that is missing, or whose first row
        differs from the records; None if there is none."""
        first = self._snapshot.graph.parts[number].first
        differ: list[int] = []
        for block in range(file.blocks):
            found = file.block(block, messages=True, changes=self._changes)
            row = row_of(self._view, self._contents, first + (block << BITS), changes=self._changes)
            if found is None or (row is not None and found[0] not in (None, row)):
                differ.append(block)
        return differ[0] if differ else None


def write_summaries(
    folder: Transport,
    snapshot: Snapshot,
    packs: range,
    entry: PackEntry,
    randomness: Callable[[int], bytes],
    pace: Pace = unpaced,
) -> None:
    """Write the file of summaries of the pack of `entry` durably, if its system has a log. `packs`: the number in the
    snapshot of this pack, or the numbers of the packs that were joined in it."""
    try:
        summariser = Summariser(snapshot)
    except Unsupported:
        return
    temporary = f"{INCOMING}/{randomness(8).hex()}.summaries"
    try:
        with contextlib.closing(folder.create(temporary)) as file:
            for piece in encode_summaries(summariser.blocks(packs, pace), entry, summariser.columns):
                file.write(piece)
            file.sync()
        folder.perform([Rename(temporary, summaries_path(entry.name)), SyncDirectory(PACKS)])
    except BaseException:
        with contextlib.suppress(TransportError):
            folder.perform([Delete(temporary)])
        raise


def summarise_joined(
    folder: Transport, before: Snapshot, after: State, randomness: Callable[[int], bytes], pace: Pace = unpaced
) -> None:
    """Write the summaries of the pack into which packs of a snapshot were joined, from the summaries of these packs."""
    gone = [number for number, pack in enumerate(before.packs) if pack.entry not in after.packs]
    packs = range(gone[0], gone[-1] + 1) if gone else range(0)
    entry = after.packs[packs.start] if packs else None
    segments = sum(before.packs[number].entry.segments for number in packs)
    if entry is not None and entry.segments == segments >= LEAST and not is_remote(folder):
        write_summaries(folder, before, packs, entry, randomness, pace)


def summarise(folder: Transport, snapshot: Snapshot, randomness: Callable[[int], bytes], pace: Pace = unpaced) -> None:
    """Write the summaries of each pack that lacks them. In a remote store, summaries are neither written nor read."""
    for number, pack in enumerate(() if is_remote(folder) else snapshot.packs):
        if not pack.has_summaries:
            write_summaries(folder, snapshot, range(number, number + 1), pack.entry, randomness, pace)
            pack.look_for_summaries()


def _paced(ordinals: range, pace: Pace) -> Iterator[int]:
    for ordinal in ordinals:
        pace()
        yield ordinal
