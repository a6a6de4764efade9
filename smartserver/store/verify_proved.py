"""`check_packs`: all packs of a repository proved natively, in one process that reads each byte of them once.

It says that all is well, or nothing: where anything is not as it must be, Python checks all of them, and names what is.
A segment that only Python can check is checked by it (`SegmentCheck`).
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b

from smartserver.errors import CorruptFile
from smartserver.store.blocks import seal
from smartserver.store.index import Index
from smartserver.store.native import Prover, count_work, make_prover
from smartserver.store.open_pack import OpenPack
from smartserver.store.pack import CHUNK, TRAILER
from smartserver.store.snapshot import Snapshot
from smartserver.store.verify_share import SegmentCheck, SegmentReport
from transports.errors import TransportError

TEXTS = 128 << 20
"""Bytes of text that are kept. A history of 12,502 revisions then reads a tenth of its packs again, with 40 MiB all of
them."""

Progress = Callable[[int], None]
"""Told how many bytes of packs were read so far."""


def check_packs(snapshot: Snapshot, progress: Progress) -> SegmentReport | None:
    """What was read and found, which has no problem; None where something is wrong, or cannot be proved natively."""
    prover = make_prover(snapshot.state.vcs, TEXTS, False, None)
    if prover is None or snapshot.far:
        return None
    check = SegmentCheck(snapshot)
    done = 0
    try:
        for number, pack in enumerate(snapshot.packs):
            for size in _check_pack(prover, check, number, pack):
                done += size
                progress(done)
    except (_NotAsItMustBe, ValueError, CorruptFile, TransportError):
        return None
    found = check.take()
    return None if found.problems else SegmentReport(prover.segments, prover.records, [], found.ghosts)


class _NotAsItMustBe(Exception):
    """Something is wrong, and Python finds out what."""


def _check_pack(prover: Prover, check: SegmentCheck, number: int, pack: OpenPack) -> Iterator[int]:
    """Check a pack; the bytes that were read, as they are."""
    index, entry, reader = pack.index, pack.entry, pack.reader
    said = index.segments, index.records if entry.has_index else 0
    if pack.rebuilt is not None or said != (entry.segments, entry.records):
        raise _NotAsItMustBe
    prover.read_from(reader.read if reader.descriptor is None else reader.descriptor)
    first = prover.segments
    digest = blake2b(reader.header, digest_size=TRAILER)
    offsets = index.segment_offsets[:]
    local = 0
    while local < index.segments:
        stop = local + 1
        while stop < index.segments and offsets[stop + 1] - offsets[local] <= CHUNK:
            stop += 1
        content = reader.read(offsets[local], offsets[stop] - offsets[local])
        digest.update(content)
        blocks = [content[offsets[at] - offsets[local] : offsets[at + 1] - offsets[local]] for at in range(local, stop)]
        _check_segments(prover, check, number, local, blocks, offsets[local])
        yield len(content)
        local = stop
    if not digest.digest() == reader.trailer() == entry.hash:
        raise _NotAsItMustBe
    body = prover.index(entry.length, entry.hash, first, lineages(index))
    (last,) = deque(seal([body]), maxlen=1)
    if not last.endswith(index.hash):
        raise _NotAsItMustBe
    yield len(reader.header) + TRAILER


def _check_segments(prover: Prover, check: SegmentCheck, number: int, local: int, blocks: list[bytes], at: int) -> None:
    """Check segments that lie side by side, the first one number `local` of its pack, and at `at`."""
    while blocks:
        count, _, _, is_turn = prover.prove(blocks, at, sys.maxsize, sys.maxsize)
        count_work(prover)
        at += sum(map(len, blocks[:count]))
        local += count
        del blocks[:count]
        if is_turn:
            if not check.check(number, local, blocks[0]):
                raise _NotAsItMustBe
            prover.note(blocks[0], at)
            at += len(blocks.pop(0))
            local += 1


def lineages(index: Index) -> list[int]:
    """The lineages an index has for the records of its pack, in their order there: the pack does not tell them."""
    offsets, found = array("Q"), array("I")
    for row in index.rows():
        offsets.append(row.header_offset)
        found.append(row.lineage)
    return [found[row] for row in sorted(range(index.records), key=offsets.__getitem__)]
