"""Checks the segments of a push against the stored revisions, and writes them to quarantine. No lock is held meanwhile.

Three things are proved: each record matches its key, the parents of each revision are those that its own record names,
and everything that a record refers to is pushed or stored (`proof`). Revisions that are stored already are neither
checked nor written. A record whose chain is too deep for a quick read is encoded again; all other frames are stored as
the client sent them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, takewhile

from smartserver.errors import ConflictingRecord, CorruptRecord, LimitExceeded, MissingBase, MissingParents
from smartserver.records.check import TextProof, check_bytes, verify_record
from smartserver.records.delta import decompress, decompress_parts
from smartserver.records.faults import SAFE, Level, Policy
from smartserver.records.limits import (
    BYTES_OF_RECORD,
    BYTES_OF_REFERRING,
    BYTES_OF_SEGMENT,
    MAX_CHAIN,
    MAX_REFERRING,
    MAX_TAKEN,
)
from smartserver.records.model import BaseTag, Entry, Key, Record, RevisionId, Segment, made
from smartserver.records.segment import decode_segment, encode_segment, frames
from smartserver.records.system import system_of
from smartserver.store import parts
from smartserver.store.ancestry import Ancestry
from smartserver.store.graph import Graph
from smartserver.store.index import Index, Row
from smartserver.store.index_build import Numbering
from smartserver.store.known_records import NO_BASE, TEXT_BYTES, Frame, KnownRecords, StoredBases
from smartserver.store.native import Prover, count_work, make_prover
from smartserver.store.proof import Judge, ReferenceCache, SegmentProof, UnreachableBase, check_own_record
from smartserver.store.quarantine import DraftPack, Quarantine
from smartserver.store.record import PackEntry
from smartserver.store.snapshot import Snapshot
from smartserver.store.transaction import Transaction
from transports.errors import TransportError

MAX_STORED_DEPTH = 64
"""The depth of a record's chain above which the record is encoded again. Each push of one revision makes chains
longer."""
KEYS_NAMED = 4096
"""The most missing bases or revisions that an error names."""

BEGIN = 1 << 20
"""A system can see at least this many first bytes of a large text that is not a list."""

MOST, FEWEST = 4096, 8
"""The most segments for one call of the native prover, and the number for the call after a segment that Python had to
prove."""

TWICE = "its revision is sent twice"


class UploadValidator:
    """Checks segments against one snapshot, in order, and writes the new ones to quarantine."""

    def __init__(self, transaction: Transaction, quarantine: Callable[[], Quarantine], policy: Policy = SAFE) -> None:
        """`quarantine`: creates a `Quarantine` when the first new segment arrives. `policy`: the policy for faults."""
        self._snapshot = transaction.snapshot
        self._kinds = transaction.kinds
        self._conflicts = [kind.base and check_bytes(kind) > 0 for kind in self._kinds]
        """For each kind, True if its records may be bases, and its keys do not prove their texts."""
        self._system = system_of(transaction.vcs)
        graph = self._snapshot.graph if self._snapshot is not None else Graph()
        self._graph = graph
        self._allowance = transaction.allowance
        self._ancestry = Ancestry(graph, self._allowance.charge)
        self._numbering = Numbering()
        self._references = ReferenceCache()
        self._known = KnownRecords(self._snapshot, self._allowance, self._numbering.records, self._read)
        known, charge = self._known, self._allowance.charge
        self.judge = Judge(transaction.vcs, policy, known.is_stored, known.measure, known.read, charge)
        self._first_meta: bytes | None = None
        """The meta of the own record of the first revision. Most revisions have the same meta, because nearly all are
        commits."""
        self._other_metas: dict[RevisionId, bytes] = {}
        """The metas of the own records that differ from `_first_meta`, by revision."""
        self._prover = self._make_prover(policy.level is not Level.OFF)
        self._at_once = MOST
        """The number of segments for the next call of the prover."""
        self._is_read_from_file = False
        """True if the prover reads the file of the pack."""
        self._facts: dict[RevisionId, bytes] = {}
        """The `System.tip_fact` of each revision that has a non-empty one."""
        self._make_quarantine = quarantine
        self.draft: DraftPack | None = None
        """The pack of the new segments; None while there are no new segments."""
        self._content = b""
        self._start = 0
        self._unreachable: dict[Key, None] = {}
        self._met: set[RevisionId] = set()
        self.taken = 0
        """The number of segments that were checked."""
        self.left_out: list[RevisionId] = []
        """The received revisions that were stored already. The pack is valid only as long as they are stored."""
        self.bytes_left_out = 0

    def own_meta(self, revision: RevisionId) -> bytes | None:
        """Return the meta of the own record of a new revision of the body; None for any other revision."""
        if self._numbering.revisions.find(revision) >= 0:
            return self._other_metas.get(revision, self._first_meta)
        return None if self._prover is None else self._prover.own_meta(revision)

    def fact(self, revision: RevisionId) -> bytes | None:
        """Return the `System.tip_fact` of a new revision of the body; None for any other revision."""
        return self._facts.get(revision, b"") if self._came(revision) else None

    def take(self, came: Sequence[tuple[RevisionId, bytes]]) -> None:
        """Check segments, given with the ids of their revisions, and write the new ones. Once a base is missing, no
        segment is written any more.

        Raises:
            Malformed: a segment cannot be decoded.
        """
        end = self.taken + len(came)
        while self.taken < end:
            if self._take_proved(came, self.taken - end + len(came)):
                content = came[self.taken - end][1]
                self._take(decode_segment(content, 0, self._kinds), content)
                self.taken += 1

    def _make_prover(self, judges: bool) -> Prover | None:
        """Make the native prover. Return None for a remote store, for which Python reads all bases of a segment
        together."""
        if self._snapshot is not None and self._snapshot.is_remote:
            return None
        bases = None if self._snapshot is None else StoredBases(self._snapshot, self._ancestry)
        return make_prover(self._system.name, TEXT_BYTES, judges, bases)

    def _take_proved(self, came: Sequence[tuple[RevisionId, bytes]], at: int) -> bool:
        """Prove the segments of `came` from index `at` on natively, at most `_at_once`. Return True if Python must
        prove the next segment."""
        prover = self._prover
        if prover is None or self._unreachable:
            return True
        ordinal = self._graph.ordinal
        new = list(takewhile(lambda segment: ordinal(segment[0]) is None, came[at : at + self._at_once]))
        if not new:
            return True
        draft = self._begun()
        draft.flush()
        if not self._is_read_from_file:
            self._read_proved_from(prover, draft)
        blocks = [content for _, content in new]
        count, decoded, steps, is_turn = prover.prove(blocks, draft.length, *self._allowance.room)
        self._allowance.charge(steps)
        self._allowance.decode(decoded)
        draft.append(b"".join(blocks[:count]))
        count_work(prover)
        self.taken += count
        # The segments after one that Python must prove are mostly of the same sort.
        self._at_once = FEWEST if is_turn else min(4 * self._at_once, MOST)
        return is_turn

    def _note_meta(self, revision: RevisionId, meta: bytes) -> None:
        if self._first_meta is None:
            self._first_meta = meta
        elif meta != self._first_meta:
            self._other_metas[revision] = meta

    def _read_proved_from(self, prover: Prover, draft: DraftPack) -> None:
        """Once the pack is a local file, let the prover read it by its descriptor, which needs no lock of Python."""
        descriptor = draft.quarantine.pack.descriptor
        self._is_read_from_file = descriptor is not None
        if descriptor is not None:
            prover.read_from(descriptor)
        elif not draft.index.segments:
            prover.read_from(self._read)

    def _catch_up(self) -> None:
        """Add the natively proved revisions and records to the Python tables. After a missing base, none is proved
        natively."""
        prover, revisions, ancestry = self._prover, self._numbering.revisions, self._ancestry
        if prover is None or self._unreachable:
            return
        for revision, parents in prover.revisions(len(revisions)):
            ancestry.add([ancestry.stored + parent if parent >= 0 else -1 - parent for parent in parents])
            revisions.add(revision)
            self._note_meta(revision, prover.own_meta(revision) or b"")
        if prover.records > len(self._known.stream):
            self._known.stream.extend(prover, ancestry.stored)

    def _came(self, revision: RevisionId) -> bool:
        """Tell whether a revision is among the new revisions of the body so far."""
        if self._numbering.revisions.find(revision) >= 0:
            return True
        return self._prover is not None and self._prover.own_meta(revision) is not None

    def _begun(self) -> DraftPack:
        if self.draft is None:
            quarantine = self._make_quarantine()
            try:
                self.draft = DraftPack(quarantine, self._kinds, self._numbering, self._prover)
            except BaseException:
                quarantine.discard()
                raise
        return self.draft

    def _take(self, segment: Segment, content: bytes) -> None:
        """Check one segment in Python, with all its records, and write it if it is new."""
        self._allowance.charge(1 + len(segment.parents) + len(segment.entries))
        revision = segment.revision
        if self._graph.ordinal(revision) is not None:
            if revision in self._met:
                raise CorruptRecord(revision, revision, TWICE)
            self._met.add(revision)
            self.left_out.append(revision)
            self.bytes_left_out += len(content)
            return
        if self._came(revision):
            raise CorruptRecord(revision, revision, TWICE)
        self._catch_up()
        ordinal = self._ancestry.add(self._parents(segment))
        self._numbering.revisions.add(revision)
        if self._unreachable:
            self._name_unreachable(segment, ordinal)
            return
        draft = self._begun()
        self._content, self._start = content, draft.length
        try:
            self._check(segment, ordinal, draft)
        finally:
            self._content = b""

    def finish(self) -> PackEntry | None:
        """End the pack and return its entry; None if no revision was new. The pack is not durable before its trailer is
        written. Raise MissingBase if a base was missing."""
        # Nothing is decoded any more. Objects in cycles would keep memory until the next garbage collection.
        self._known.stream.recent.clear()
        if self._prover is not None:
            self._prover.forget()
        if self._unreachable:
            raise MissingBase(list(self._unreachable)[:KEYS_NAMED])
        # Free memory first, as writing the index of a long history takes memory too.
        self._references = ReferenceCache()
        self._known.forget()
        return None if self.draft is None else self.draft.seal()

    def meets(self, snapshot: Snapshot, count: int) -> bool:
        """Tell whether the pack has a revision with an ordinal from `count` on in `snapshot`, or a record of such a
        revision."""
        if any(self._came(snapshot.revision(ordinal)) for ordinal in range(count, snapshot.graph.count)):
            return True
        if self.draft is None:
            return False
        with self.draft.open_index() as mine:
            for pack, part in zip(snapshot.packs, snapshot.graph.parts, strict=True):
                first, index = count - part.first, pack.index
                if first < part.count and _meet(mine, index, first):
                    return True
        return False

    def discard(self) -> None:
        """Delete the pack, ignoring errors of the store."""
        self._known.stream.recent.clear()
        if self.draft is not None:
            with contextlib.suppress(TransportError):  # An error of closing does not matter, as the pack is deleted.
                self.draft.close()
            self.draft.quarantine.discard()
        self.release()

    def release(self) -> None:
        """Free the memory of a validator that is no longer used. The validator and its parts form cycles: a push of a
        long history would otherwise keep a hundred megabytes until the next garbage collection."""
        self._known.forget()
        self._numbering = Numbering()
        self._ancestry = Ancestry(Graph())
        self.draft = self._prover = None

    def _parents(self, segment: Segment) -> list[int]:
        parents: list[int] = []
        missing: list[RevisionId] = []
        for parent in segment.parents:
            if parent.absent:
                continue
            number = self._numbering.revisions.find(parent.id)
            ordinal = self._ancestry.stored + number if number >= 0 else self._graph.ordinal(parent.id)
            if ordinal is None:
                missing.append(parent.id)
            else:
                parents.append(ordinal)
        if missing:
            raise MissingParents(missing)
        return parents

    def _proof(self, segment: Segment, ordinal: int) -> SegmentProof:
        reaches = partial(self._ancestry.reaches_any, ordinal)
        return SegmentProof(self._system, segment, reaches, self._known.copies, self._known.metas, self._references)

    def _check(self, segment: Segment, ordinal: int, draft: DraftPack) -> None:
        if self._snapshot is not None and self._snapshot.is_remote:
            self._fetch(segment, self._snapshot)
        proof = self._proof(segment, ordinal)
        first = len(self._known.stream)
        rows: list[Row] = []
        rewritten: dict[int, tuple[Entry, bytes]] = {}
        at = self._start + segment.frames_at
        stream = self._known.stream
        for index, (entry, frame) in enumerate(zip(segment.entries, frames(segment, self._content), strict=True)):
            if entry.length > MAX_TAKEN:
                raise LimitExceeded(BYTES_OF_RECORD, entry.length, MAX_TAKEN)
            if entry.length > MAX_REFERRING and self._system.is_list(entry.kind, entry.meta):
                raise LimitExceeded(BYTES_OF_REFERRING, entry.length, MAX_REFERRING)
            try:
                base_key = proof.base(entry)
            except UnreachableBase as error:
                self._unreachable[error.key] = None
                self._name_unreachable(segment, ordinal)
                return
            row, number, stored = self._known.row(entry, base_key, first + index)
            place = Frame(entry.encoding, at, entry.frame_length, entry.length, number, stored)
            self._charge(entry, base_key, row)
            base_length = partial(self._known.text_length, entry.kind, base_key)
            with parts.turn(row.chain_kib, entry.length, base_length, self._allowance):
                anew = self._prove(proof, entry, base_key, frame, row)
            if anew is not None:
                rewritten[index], row = anew
            rows.append(row)
            stream.add(entry.kind, entry.key, entry.meta, ordinal, place, row)
            at += entry.frame_length
        check_own_record(self._system, segment, proof.own)
        if proof.own is not None:
            self._note_meta(segment.revision, proof.own.meta)
            fact = self._system.tip_fact(proof.own.meta, proof.own.text)
            if fact:
                self._facts[segment.revision] = fact
        proof.finish()
        self.judge.finish(segment.revision)
        if rewritten:
            segment = self._rewrite(segment, rewritten)
            self._settle(segment, first)
        draft.add(self._content, segment, rows, stream.bases(first))

    def _fetch(self, segment: Segment, snapshot: Snapshot) -> None:
        """Read together all stored records that are bases of a segment's records, or have the same key and must be
        equal."""
        wanted = [(entry.kind, segment.base_of(entry)) for entry in segment.entries if entry.base != BaseTag.NONE]
        wanted += [(entry.kind, entry.key) for entry in segment.entries if self._conflicts[entry.kind]]
        known = self._known.stream
        news = [
            name for name in dict.fromkeys(wanted) if known.recent.get(*name) is None and known.first(*name) is None
        ]
        snapshot.fetch([location for name in news if (location := snapshot.first(*name)) is not None])

    def _prove(
        self, proof: SegmentProof, entry: Entry, base_key: Key | None, frame: memoryview, row: Row
    ) -> tuple[tuple[Entry, bytes], Row] | None:
        """Prove that a record matches its entry. If its chain is too deep, encode the record again, and return its new
        entry, frame and row; else None."""
        base = None if base_key is None else self._known.record(entry.kind, base_key)
        # The base of a record whose chain is too deep, else None.
        left = base_key if row.depth > MAX_STORED_DEPTH or row.chain_kib > MAX_CHAIN >> 10 else None
        if entry.length > parts.ALONE and left is None and self._is_content(entry):
            record = self._decode_parts(proof.revision, entry, frame, base)
        else:
            record = self._decode(proof.revision, entry, frame, base)
        proof.add(entry, record, base)
        self.judge.weigh_record(proof.revision, record, base)
        known = self._known.stream
        is_new = self._snapshot is None and known.first(entry.kind, entry.key) is None
        if self._conflicts[entry.kind] and not is_new:
            # The key does not prove the text: a second text of a key that may be a base is refused.
            other = known.record(entry.kind, entry.key)
            if other is not None and other.text != record.text:
                raise ConflictingRecord(entry.key)
        if self._kinds[entry.kind].base and len(record.text) == entry.length:
            self._known.stream.recent.put(record)
        if entry.kind == self._system.own_kind and entry.key == proof.revision:
            proof.own = record
        return None if left is None else self._known.encode_anew(proof, entry, record, row, left)

    def _charge(self, entry: Entry, base_key: Key | None, row: Row) -> None:
        """Charge the decoding of a record, and of its whole chain if its base is not a recent record."""
        if base_key is None or self._known.stream.recent.get(entry.kind, base_key) is not None:
            self._allowance.decode(entry.length)
        else:
            self._allowance.decode(row.chain_kib << 10)

    def _decode(self, revision: RevisionId, entry: Entry, frame: memoryview, base: Record | None) -> Record:
        try:
            text = decompress(entry.encoding, frame, entry.length, b"" if base is None else base.text)
            verify_record(self._kinds[entry.kind], entry.key, entry.meta, text, entry.check)
        except ValueError as error:  # Malformed is a ValueError.
            raise CorruptRecord(revision, entry.key, str(error)) from error
        return made(Record, (entry.kind, entry.key, entry.meta, text))

    def _is_content(self, entry: Entry) -> bool:
        """Tell whether only the first bytes of a record's text are needed once its hash is checked."""
        if self._system.is_list(entry.kind, entry.meta):
            return False
        # The text of a known key is compared with the known text.
        return not (self._conflicts[entry.kind] and self._known.measure(entry.kind, entry.key) is not None)

    def _decode_parts(self, revision: RevisionId, entry: Entry, frame: memoryview, base: Record | None) -> Record:
        """Decode and prove a record part by part. Return it with only the first bytes of its text, `BEGIN` or more."""
        begin = bytearray()
        try:
            proof = TextProof(self._kinds[entry.kind], entry.key, entry.meta, entry.length, entry.check)
            bases = () if base is None else (base.text,)
            for part in decompress_parts(entry.encoding, parts.cut(frame), entry.length, bases):
                self._allowance()
                proof.update(part)
                if len(begin) < BEGIN:
                    begin += part
            proof.finish()
        except ValueError as error:  # Malformed is a ValueError.
            raise CorruptRecord(revision, entry.key, str(error)) from error
        return made(Record, (entry.kind, entry.key, entry.meta, bytes(begin)))

    def _rewrite(self, segment: Segment, rewritten: dict[int, tuple[Entry, bytes]]) -> Segment:
        entries = list(segment.entries)
        bodies = list(map(bytes, frames(segment, self._content)))
        for index, (entry, frame) in rewritten.items():
            entries[index], bodies[index] = entry, frame
        self._content = encode_segment(segment.revision, segment.parents, entries, bodies, self._kinds)
        if len(self._content) > MAX_TAKEN:  # A client would refuse to read it.
            raise LimitExceeded(BYTES_OF_SEGMENT, len(self._content), MAX_TAKEN)
        return decode_segment(self._content, 0, self._kinds)

    def _settle(self, segment: Segment, first: int) -> None:
        """Set the new places of the records of a segment that was encoded again."""
        at = self._start + segment.frames_at
        for number, entry in enumerate(segment.entries, first):
            _, base, stored = self._known.row(entry, segment.base_of(entry) or None, number)
            self._known.stream.move(number, Frame(entry.encoding, at, entry.frame_length, entry.length, base, stored))
            at += entry.frame_length

    def _name_unreachable(self, segment: Segment, ordinal: int) -> None:
        """Collect the missing bases of a segment without decoding it, so that one error names them all."""
        if len(self._unreachable) >= KEYS_NAMED:
            return
        proof = self._proof(segment, ordinal)
        for entry in segment.entries:
            try:
                proof.base(entry)
            except UnreachableBase as error:
                self._unreachable[error.key] = None
            proof.claim(entry)
            self._known.stream.add(entry.kind, entry.key, entry.meta, ordinal, Frame(0, 0, 0, 0, NO_BASE, b""), Row())

    def _read(self, offset: int, size: int) -> bytes:
        """Read bytes of the pack so far, including the segment that is being checked."""
        if self._content and offset >= self._start:
            return self._content[offset - self._start : offset - self._start + size]
        if self.draft is None:
            raise LookupError("nothing was written yet")
        return self.draft.read(offset, size)


def _meet(mine: Index, stored: Index, first: int) -> bool:
    """Tell whether a record of `mine` is also in `stored`, in a segment from number `first` on."""
    if mine.records > stored.records:
        return any(row.segment >= first and mine.find_digest(stored.digest(at)) for at, row in enumerate(stored.rows()))
    same = chain.from_iterable(stored.find_digest(mine.digest(at)) for at in range(mine.records))
    return any(stored.at(at).segment >= first for at in same)
