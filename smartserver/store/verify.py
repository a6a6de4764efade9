"""The whole repository read and checked: what is damaged is named by file, byte and key, and never raised. A store that
cannot be reached is, since it says nothing of any file; but not over damage that was found before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from hashlib import blake2b

from msgspec import structs

from smartserver.errors import (
    CorruptFile,
    CorruptRecord,
    LimitExceeded,
    MissingReference,
    NoSuchRepository,
    WrongParents,
    shown,
)
from smartserver.records.check import rules_of, verify_record
from smartserver.records.delta import decompress
from smartserver.records.model import BaseTag, Entry, Key, Record, RevisionId, Segment
from smartserver.records.segment import decode_segment, frames
from smartserver.records.varint import Malformed
from smartserver.store.ancestry import Ancestry
from smartserver.store.arrivals import RecentRecords
from smartserver.store.caches import TextCache
from smartserver.store.document import Root
from smartserver.store.format import ROOT
from smartserver.store.graph import Graph
from smartserver.store.index import Index, Row, kib
from smartserver.store.index_build import IndexBuilder
from smartserver.store.intent import intent_behind, ranges_of
from smartserver.store.model import VerifyReport
from smartserver.store.open_pack import OpenPack, index_path
from smartserver.store.pack import CHUNK, TRAILER
from smartserver.store.proof import ReferenceCache, SegmentProof, UnreachableBase, check_own_record
from smartserver.store.root import RootView, damage
from smartserver.store.snapshot import Snapshot
from smartserver.store.states import reader
from smartserver.store.swap import RootFile
from transports.errors import NoSuchFile, PermissionDenied, TransportError, TransportFailed

MAX_PROBLEMS = 10_000
"""Damages listed; one more line says that there are others."""

NO_INDEX = "missing or damaged: the pack is read in its place each time the repository is opened, which takes longer"
"""Nothing writes it anew: lineages are lost with it, so that it need not be the one whose hash the root names."""

Progress = Callable[[int, int], None]


def verify(file: RootFile, progress: Progress) -> VerifyReport:
    """Read and check everything a repository's root names. `progress`: bytes of packs done, bytes in all.

    Raises:
        NoSuchRepository: there is none.
        Unsupported: this release cannot read it.
        TransportFailed: the store cannot be reached, or no more, and no damage was found before.
        PermissionDenied: a file of it may not be read, and no damage was found before.
    """
    try:
        root = file.read()
    except (CorruptFile, TransportError) as wrong:
        return VerifyReport(0, 0, 0, 0, (damage(wrong),))
    if root.deleted:
        raise NoSuchRepository(file.path)
    return _Verification(file, root, progress).run()


class _Verification:
    def __init__(self, file: RootFile, root: Root, progress: Progress) -> None:
        self._folder = file.folder
        self._again = reader(file, TextCache(0))
        self._root = root
        self._rules = rules_of(root.vcs)
        self._progress = progress
        self._total = sum(pack.length for pack in root.packs)
        self._done = 0
        self._segments = 0
        self._records = 0
        self._problems: list[str] = []
        self._ghosts: set[RevisionId] = set()
        """Parents that are said to be absent; some may have been stored since."""
        self._ancestry = Ancestry(Graph(), lambda steps: progress(self._done, self._total))
        self._references = ReferenceCache()
        self._recent = RecentRecords()
        self._window: dict[str, tuple[int, bytes]] = {}
        """Of a far pack, what was read ahead: its path -> where that begins, and the bytes."""

    def run(self) -> VerifyReport:
        ghosts = 0
        try:
            ghosts = self._check()
        except (TransportFailed, PermissionDenied) as lost:
            if not self._problems:
                raise
            self._problems.append(f"{lost}: what comes after that was not checked")
        read = len(self._root.packs), self._segments, self._records, self._done
        return VerifyReport(*read, tuple(self._problems), ghosts)

    def _check(self) -> int:
        """Check everything; how many ghosts there are."""
        view = RootView(self._root, self._folder)
        for problem in view.verify():
            self._report(problem)
        snapshot = self._open()
        for number, pack in enumerate(snapshot.packs):
            self._check_pack(snapshot, number, pack)
        if len(snapshot.packs) == len(self._root.packs):
            self._check_refs(snapshot)
        self._progress(self._total, self._total)
        return sum(snapshot.ordinal(each) is None for each in self._ghosts)

    def _open(self) -> Snapshot:
        """The snapshot of the root, or of as many of its packs, from the first one, as can be opened."""
        packs = self._root.packs
        count, problem = len(packs), ""
        while True:
            try:
                root = structs.replace(self._root, packs=packs[:count])
                snapshot = Snapshot.open(self._folder, root, again=self._again)
                for pack in snapshot.packs:
                    pack.index.blocks.check()
                break
            except (CorruptFile, TransportError) as wrong:
                count, problem = count - 1, damage(wrong)
        if problem:
            self._report(f"{problem}; {len(packs) - count} of {len(packs)} packs cannot be checked")
        return snapshot

    def _report(self, problem: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)
        elif len(self._problems) == MAX_PROBLEMS:
            self._problems.append(f"and more: only the first {MAX_PROBLEMS} damages are listed")

    def _at(self, pack: OpenPack, offset: int, why: object) -> None:
        self._report(f"{pack.path} at byte {offset}: {why}")

    def _check_refs(self, snapshot: Snapshot) -> None:
        try:
            for name, value in snapshot.view.refs().items():
                for tip in value:
                    if snapshot.ordinal(tip.id) is None:
                        self._report(f"{ROOT}: ref {name!r} is at {shown(tip.id)}, which is not stored")
        except (CorruptFile, TransportError):
            pass  # A damaged table is reported with the root's files.

    def _check_pack(self, snapshot: Snapshot, number: int, pack: OpenPack) -> None:
        if pack.rebuilt is not None:
            self._report(f"{index_path(pack.entry.name)}: {NO_INDEX}")
        index, entry = pack.index, pack.entry
        if (index.segments, index.records) != (entry.segments, entry.records):
            found = f"{index.segments} segments and {index.records} records"
            self._at(pack, 0, f"holds {found}, the root says {entry.segments} and {entry.records}")
        earlier = Snapshot(snapshot.view, snapshot.packs[:number], snapshot.graph, snapshot.texts)
        builder = IndexBuilder(lambda kind, key: earlier.first_row(kind, key) is not None)
        try:
            reader = pack.reader
            digest = blake2b(reader.header, digest_size=TRAILER)
            trailer = reader.trailer()
        except (CorruptFile, TransportError) as wrong:
            self._report(damage(wrong))
            for _ in range(index.segments):
                self._add_to_ancestry(snapshot)
            return
        self._check_intent(pack)
        self._done += len(reader.header) + len(trailer)
        for local in range(index.segments):
            ordinal = self._add_to_ancestry(snapshot)
            try:
                content = self._read(pack, local)
            except (CorruptFile, TransportError) as wrong:
                self._report(damage(wrong))
                continue
            digest.update(content)
            self._check_segment(snapshot, pack, local, ordinal, content, builder)
        if digest.digest() != trailer or trailer != entry.hash:
            self._at(pack, pack.reader.end, "the pack's bytes, the hash it ends with and the root's are not the same")
        elif builder.segments == index.segments and pack.rebuilt is None:
            self._compare(pack, Index.of(builder.finish(entry.length, trailer), index.name))

    def _check_intent(self, pack: OpenPack) -> None:
        try:
            with contextlib.suppress(NoSuchFile):  # Its segments lie elsewhere by now.
                intent_behind(ranges_of(self._folder, pack.path), pack.entry.length, pack.path)
        except (CorruptFile, TransportError) as wrong:
            self._report(damage(wrong))

    def _read(self, pack: OpenPack, ordinal: int) -> bytes:
        start, stop = pack.index.segment_offsets[ordinal], pack.index.segment_offsets[ordinal + 1]
        before = self._done // CHUNK
        if not pack.far:
            content = pack.reader.read(start, stop - start)
        else:
            begin, window = self._window.get(pack.path, (0, b""))
            if stop > begin + len(window):
                begin, window = start, pack.reader.read(start, min(max(stop - start, CHUNK), pack.reader.end - start))
                self._window = {pack.path: (begin, window)}
            content = window[start - begin : stop - begin]
        self._done += len(content)
        if self._done // CHUNK != before:
            self._progress(self._done, self._total)
        return content

    def _check_segment(
        self, snapshot: Snapshot, pack: OpenPack, local: int, ordinal: int, content: bytes, builder: IndexBuilder
    ) -> None:
        offset = pack.index.segment_offsets[local]
        try:
            segment = decode_segment(content, 0, self._root.kinds)
        except (Malformed, LimitExceeded) as wrong:
            self._at(pack, offset, f"segment of revision {shown(pack.index.revision(local))}: {wrong}")
            return
        if segment.length != len(content) or segment.revision != pack.index.revision(local):
            self._at(pack, offset, f"segment of revision {shown(segment.revision)}: not the one the index names")
            return
        self._segments += 1
        self._records += len(segment.entries)
        self._check_parents(snapshot, pack, offset, segment, ordinal)
        self._check_records(snapshot, pack, offset, segment, content, ordinal)
        builder.add(offset, segment, self._rows(snapshot, pack, offset, segment))

    def _add_to_ancestry(self, snapshot: Snapshot) -> int:
        """The next revision's ordinal; every one is added, or those after it would have wrong ones."""
        ordinal = len(self._ancestry)
        return self._ancestry.add([parent for parent in snapshot.graph.parents(ordinal) if parent < ordinal])

    def _check_parents(self, snapshot: Snapshot, pack: OpenPack, offset: int, segment: Segment, ordinal: int) -> None:
        named = []
        for parent in segment.parents:
            if parent.absent:
                self._ghosts.add(parent.id)
                continue
            found = snapshot.ordinal(parent.id)
            if found is None or found >= ordinal:
                where = "not stored" if found is None else "stored after it"
                self._at(pack, offset, f"revision {shown(segment.revision)}: its parent {shown(parent.id)} is {where}")
            else:
                named.append(found)
        if tuple(named) != snapshot.graph.parents(ordinal):
            self._at(pack, offset, f"revision {shown(segment.revision)}: its parents are not those in the index")

    def _check_records(
        self, snapshot: Snapshot, pack: OpenPack, offset: int, segment: Segment, content: bytes, ordinal: int
    ) -> None:
        reach = self._ancestry.reach(ordinal)
        proof = SegmentProof(self._rules, segment, reach, snapshot.introducers, snapshot.metas, self._references)
        own: Record | None = None
        at = offset + segment.frames_at
        whole = True
        for entry, frame in zip(segment.entries, frames(segment, content), strict=True):
            try:
                key = proof.base(entry)
                base = None if key is None else self._base(snapshot, entry.kind, key)
                record = self._record(segment, entry, frame, base)
                proof.add(entry, record, base)
                if entry.kind == self._rules.own_kind and entry.key == segment.revision:
                    own = record
            except UnreachableBase as wrong:
                why = f"its base {shown(wrong.key)} comes from no ancestor"
                self._at(pack, at, CorruptRecord(segment.revision, entry.key, why))
                whole = False
            except CorruptRecord as wrong:
                self._at(pack, at, wrong)
                whole = False
            except (CorruptFile, TransportError) as wrong:
                why = f"its base {shown(segment.base_of(entry))} cannot be read: {damage(wrong)}"
                self._at(pack, at, CorruptRecord(segment.revision, entry.key, why))
                whole = False
            proof.claim(entry)
            at += entry.frame_length
        try:
            if whole:  # Else the record that is missing here has been named.
                check_own_record(self._rules, segment, own)
            proof.finish()
        except (CorruptRecord, WrongParents, MissingReference) as wrong:
            self._at(pack, offset, wrong)
        except (CorruptFile, TransportError) as wrong:
            self._at(pack, offset, f"what it refers to cannot be read: {damage(wrong)}")

    def _record(self, segment: Segment, entry: Entry, frame: memoryview, base: Record | None) -> Record:
        kind = self._root.kinds[entry.kind]
        if entry.length > CHUNK:
            self._progress(self._done, self._total)  # It takes long, and nobody may wait for it any more.
        try:
            text = decompress(entry.encoding, frame, entry.length, b"" if base is None else base.text)
            verify_record(kind, entry.key, entry.meta, text, entry.check)
        except ValueError as wrong:
            raise CorruptRecord(segment.revision, entry.key, str(wrong)) from wrong
        record = Record(entry.kind, entry.key, entry.meta, text)
        if kind.base:
            self._recent.put(record)
        return record

    def _base(self, snapshot: Snapshot, kind: int, key: Key) -> Record:
        found = self._recent.get(kind, key)
        if found is None:
            location = snapshot.first(kind, key)
            assert location is not None  # It was just found reachable.
            found = snapshot.record(location)
            self._recent.put(found)
        return found

    def _rows(self, snapshot: Snapshot, pack: OpenPack, offset: int, segment: Segment) -> list[Row]:
        """What the index should say of each entry; only the lineage is taken from it, the pack does not tell."""
        rows = []
        frame_at = offset + segment.frames_at
        for entry in segment.entries:
            index = pack.index
            rows_of = map(index.at, index.find(entry.kind, entry.key))
            lineage = next((each.lineage for each in rows_of if each.frame_offset == frame_at), 0)
            base = Row(0, 0, 0)
            depth, chain = 0, kib(entry.length)
            if entry.base != BaseTag.NONE:
                base = snapshot.first_row(entry.kind, segment.base_of(entry)) or base
                depth, chain = base.depth + 1, base.chain_kib + chain
            rows.append(Row(depth, chain, lineage))
            frame_at += entry.frame_length
        return rows

    def _compare(self, pack: OpenPack, built: Index) -> None:
        index = pack.index
        if built.hash == index.hash:
            return
        for row in range(min(built.records, index.records)):
            if (built.digest(row), built.at(row)) != (index.digest(row), index.at(row)):
                self._report(f"{index.name}: row {row} is not what the pack says")
                return
        self._report(f"{index.name}: not the index of its pack")
