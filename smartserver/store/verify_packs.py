"""Checks the packs of a repository: segment by segment in Python, or all packs natively."""

from __future__ import annotations

import contextlib
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b

import msgspec

from smartserver.errors import CorruptFile, CorruptRecord, LimitExceeded, MissingReference, WrongParents, shown
from smartserver.records.check import verify_record
from smartserver.records.delta import decompress
from smartserver.records.model import Entry, Record, RevisionId, Segment
from smartserver.records.segment import decode_segment, frames
from smartserver.records.system import system_of
from smartserver.records.varint import Malformed
from smartserver.store.ancestry import Ancestry
from smartserver.store.blocks import seal
from smartserver.store.graph import Graph
from smartserver.store.index import Index
from smartserver.store.known_records import TEXT_BYTES, RecentRecords
from smartserver.store.native import Prover, count_work, make_prover
from smartserver.store.open_pack import OpenPack
from smartserver.store.pack import CHUNK, TRAILER
from smartserver.store.proof import ReferenceCache, SegmentProof, UnreachableBase, check_own_record
from smartserver.store.snapshot import Snapshot
from transports.errors import PermissionDenied, TransportError, TransportFailed


def damage(error: CorruptFile | TransportError) -> str:
    """Return the message of an error about a file.

    Raises:
        TransportFailed, PermissionDenied: the given error, because it says nothing about the file.
    """
    if isinstance(error, PermissionDenied) or (isinstance(error, TransportFailed) and not error.path):
        raise error
    return str(error)


class SegmentReport(msgspec.Struct):
    """The extent of the checked segments."""

    segments: int = 0
    records: int = 0
    ghosts: list[RevisionId] = []
    """The parents that are marked absent. Some may have been stored since."""


class SegmentCheck:
    """Reads and checks segments of a snapshot; in ascending order it is fastest. `report`: is called with a message for
    each damage. `pulse`: is called repeatedly, and may raise an error to end the work."""

    def __init__(
        self, snapshot: Snapshot, report: Callable[[str], None], pulse: Callable[[], None] = lambda: None
    ) -> None:
        self._report = report
        self._snapshot = snapshot
        self._pulse = pulse
        self._kinds = snapshot.state.kinds
        self._system = system_of(snapshot.state.vcs)
        self._ancestry = Ancestry(Graph(), lambda steps: pulse())
        self._references = ReferenceCache()
        self._recent = RecentRecords(TEXT_BYTES)
        self._window = ("", 0, b"")
        """The bytes that were read ahead, with the path of their pack and their offset in it."""
        self._ahead_size = CHUNK
        self.found = SegmentReport()

    def segments(self, number: int) -> Iterator[tuple[int, bytes, Segment | None]]:
        """Read and check the segments of a pack, and report damage. Yield the number, the bytes and the decoded header
        of each readable segment; None as header if it cannot be decoded or differs from the index."""
        pack = self._snapshot.packs[number]
        for local in range(pack.index.segments):
            content = self._read(pack, local)
            if content is not None:
                segment = self._decode(pack, local, content)
                if segment is not None:
                    self._check(number, local, segment, content)
                yield local, content, segment

    def check(self, number: int, local: int, content: bytes) -> None:
        """Check the segment `local` of the pack `number`, given its bytes."""
        segment = self._decode(self._snapshot.packs[number], local, content)
        if segment is not None:
            self._check(number, local, segment, content)

    def _read(self, pack: OpenPack, local: int) -> bytes | None:
        """Read the bytes of a segment. If this fails, report the damage and return None."""
        start, stop = pack.index.segment_offsets[local], pack.index.segment_offsets[local + 1]
        try:
            path, begin, window = self._window
            if path != pack.path or not begin <= start <= stop <= begin + len(window):
                begin, window = start, self._ahead(pack, start, stop - start)
                self._window = (pack.path, begin, window)
            return window[start - begin : stop - begin]
        except (CorruptFile, TransportError) as error:
            self._report(damage(error))
            return None

    def _ahead(self, pack: OpenPack, start: int, size: int) -> bytes:
        """Read a range of a pack and, if possible, more bytes after the range."""
        most = min(max(size, self._ahead_size), pack.reader.end - start)
        with contextlib.suppress(CorruptFile, TransportError):
            return pack.reader.read(start, most)
        self._ahead_size = 0  # From here on each segment is read alone, or the bad range would be read again and again.
        return pack.reader.read(start, size)

    def _decode(self, pack: OpenPack, local: int, content: bytes) -> Segment | None:
        """Decode a segment. If this fails, or the index names another segment, report the damage and return None."""
        offset, revision = pack.index.segment_offsets[local], pack.index.revision(local)
        try:
            segment = decode_segment(content, 0, self._kinds)
        except (Malformed, LimitExceeded) as error:
            self._at(pack, offset, f"segment of revision {shown(revision)}: {error}")
            return None
        if segment.length == len(content) and segment.revision == revision:
            return segment
        self._at(pack, offset, f"segment of revision {shown(segment.revision)}: not the one the index names")
        return None

    def _check(self, number: int, local: int, segment: Segment, content: bytes) -> None:
        """Check the parents and records of a segment."""
        snapshot = self._snapshot
        pack = snapshot.packs[number]
        offset = pack.index.segment_offsets[local]
        self.found.segments += 1
        self.found.records += len(segment.entries)
        ordinal = snapshot.graph.parts[number].first + local
        # All earlier revisions must be added, or this one would get a wrong ordinal.
        for below in range(len(self._ancestry), ordinal + 1):
            self._ancestry.add([parent for parent in snapshot.graph.parents(below) if parent < below])
        if len(snapshot.packs) > 1 and snapshot.ordinal(segment.revision) != ordinal:
            self._at(pack, offset, f"revision {shown(segment.revision)}: a later pack has it again")
        self._check_parents(pack, offset, segment, ordinal)
        self._check_records(pack, offset, segment, content, ordinal)

    def _at(self, pack: OpenPack, offset: int, why: object) -> None:
        self._report(f"{pack.path} is damaged at byte {offset}: {why}")

    def _check_parents(self, pack: OpenPack, offset: int, segment: Segment, ordinal: int) -> None:
        graph = self._snapshot.graph
        indexed = graph.parents(ordinal)
        self.found.ghosts += [parent.id for parent in segment.parents if parent.absent]
        parents = [parent.id for parent in segment.parents if not parent.absent]
        # Reading an id is cheaper than searching for it, and nearly all are right.
        if parents == [graph.revision(below) if below < ordinal else None for below in indexed]:
            return
        named = []
        for parent in parents:
            found = graph.ordinal(parent)
            if found is None or found >= ordinal:
                where = "not stored" if found is None else "stored after it"
                self._at(pack, offset, f"revision {shown(segment.revision)}: its parent {shown(parent)} is {where}")
            else:
                named.append(found)
        if tuple(named) != indexed:
            self._at(pack, offset, f"revision {shown(segment.revision)}: its parents differ from those in the index")

    def _check_records(self, pack: OpenPack, offset: int, segment: Segment, content: bytes, ordinal: int) -> None:
        snapshot = self._snapshot
        reaches = partial(self._ancestry.reaches_any, ordinal)
        proof = SegmentProof(self._system, segment, reaches, snapshot.introducers, snapshot.metas, self._references)
        at = offset + segment.frames_at
        whole = True
        for entry, frame in zip(segment.entries, frames(segment, content), strict=True):
            try:
                base = self._base(proof, entry)
                record = self._record(segment, entry, frame, base)
                proof.add(entry, record, base)
                if entry.kind == self._system.own_kind and entry.key == segment.revision:
                    proof.own = record
            except CorruptRecord as error:
                self._at(pack, at, error)
                whole = False
            proof.claim(entry)
            at += entry.frame_length
        try:
            if whole:  # Else a damaged record was reported, which may be the own record.
                check_own_record(self._system, segment, proof.own)
            proof.finish()
        except (CorruptRecord, WrongParents, MissingReference) as error:
            self._at(pack, offset, error)
        except (CorruptFile, TransportError) as error:
            self._at(pack, offset, f"what it refers to cannot be read: {damage(error)}")

    def _record(self, segment: Segment, entry: Entry, frame: memoryview, base: Record | None) -> Record:
        kind = self._kinds[entry.kind]
        if entry.length > CHUNK:
            self._pulse()
        try:
            text = decompress(entry.encoding, frame, entry.length, b"" if base is None else base.text)
            verify_record(kind, entry.key, entry.meta, text, entry.check)
        except ValueError as error:
            raise CorruptRecord(segment.revision, entry.key, str(error)) from error
        record = Record(entry.kind, entry.key, entry.meta, text)
        if kind.base:
            self._recent.put(record)
        return record

    def _base(self, proof: SegmentProof, entry: Entry) -> Record | None:
        """Read the base of a record. Return None if the record has no base."""
        try:
            key = proof.base(entry)
        except UnreachableBase as error:
            why = f"its base {shown(error.key)} comes from no ancestor"
            raise CorruptRecord(proof.revision, entry.key, why) from error
        if key is None:
            return None
        found = self._recent.get(entry.kind, key)
        try:
            if found is None:
                location = self._snapshot.first(entry.kind, key)
                assert location is not None  # `proof.base` has just found it.
                found = self._snapshot.record(location)
                self._recent.put(found)
        except (CorruptFile, TransportError) as error:
            why = f"its base {shown(key)} cannot be read: {damage(error)}"
            raise CorruptRecord(proof.revision, entry.key, why) from error
        return found


TEXTS = 128 << 20
"""The most bytes of texts that the prover caches. A check of 12,502 revisions then reads a tenth of the packs twice;
with 40 MiB it reads all of them twice."""

Progress = Callable[[int], None]
"""A function that is called with the number of bytes of packs that were read so far."""


def check_packs(snapshot: Snapshot, progress: Progress) -> SegmentReport | None:
    """Prove all packs natively, and return the report. Return None if a pack is damaged or cannot be proved natively.
    The caller must then check all packs in Python, which reports the damage."""
    prover = make_prover(snapshot.state.vcs, TEXTS, False, None)
    if prover is None or snapshot.is_remote:
        return None
    check = SegmentCheck(snapshot, _refuse)
    done = 0
    try:
        for number, pack in enumerate(snapshot.packs):
            for size in _check_pack(prover, check, number, pack):
                done += size
                progress(done)
    except (_NotAsItMustBe, ValueError, CorruptFile, TransportError):
        return None
    return SegmentReport(prover.segments, prover.records, check.found.ghosts)


class _NotAsItMustBe(Exception):
    """The native check found damage. The check in Python will report it."""


def _refuse(_problem: str) -> None:
    raise _NotAsItMustBe


def _check_pack(prover: Prover, check: SegmentCheck, number: int, pack: OpenPack) -> Iterator[int]:
    """Check a pack, and yield the number of bytes of each read."""
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
    """Check consecutive segments; the first is number `local` of its pack, at offset `at`."""
    while blocks:
        count, _, _, is_turn = prover.prove(blocks, at, sys.maxsize, sys.maxsize)
        count_work(prover)
        at += sum(map(len, blocks[:count]))
        local += count
        del blocks[:count]
        if is_turn:
            check.check(number, local, blocks[0])
            prover.note(blocks[0], at)
            at += len(blocks.pop(0))
            local += 1


def lineages(index: Index) -> list[int]:
    """Return the lineages of the records of a pack, in their order in the pack. Only the index has them."""
    offsets, found = array("Q"), array("I")
    for row in index.rows():
        offsets.append(row.header_offset)
        found.append(row.lineage)
    return [found[row] for row in sorted(range(index.records), key=offsets.__getitem__)]
