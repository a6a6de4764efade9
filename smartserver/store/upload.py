"""An upload: the bytes of one body in, a pack of what is new in quarantine out.

Its segments are those that were announced, in number and order, and as many as its end says. What landed meanwhile is
cut out of the pack before it is published.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence, Set

from smartserver.errors import CorruptRecord, MissingParents, shown
from smartserver.meters import STORED, STORED_BYTES, here
from smartserver.records.faults import SAFE, Policy
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.model import GraphNode, Key, RevisionId
from smartserver.records.segment import SegmentStream, decode_revision
from smartserver.records.varint import Malformed
from smartserver.spans import Part, span
from smartserver.store.incoming import KEYS_NAMED, Intake
from smartserver.store.pack import PackReader
from smartserver.store.quarantine import Quarantine
from smartserver.store.record import PackEntry
from smartserver.store.snapshot import Snapshot
from smartserver.store.trailer import Trailer, encode_trailer
from smartserver.store.transaction import Transaction
from transports.base import Step

Report = Callable[[str, int, int], None]
"""Told what is being done, how much of it is, and of how much (0: not known)."""


def unreported(phase: str, done: int, total: int) -> None:
    """Where nobody asks how far it is."""


class Upload:
    """One body: bytes in, a checked pack in quarantine out."""

    def __init__(
        self,
        transaction: Transaction,
        quarantine: Callable[[], Quarantine],
        *,
        graph_first: bool,
        policy: Policy = SAFE,
    ) -> None:
        """`transaction`: what the segments are checked against; a repository it makes is made at the commit.

        `quarantine` makes one for what is new.
        """
        self.allowance = transaction.allowance
        """What it may still cost."""
        self._quarantine = quarantine
        self._policy = policy
        self._intake = Intake(transaction, quarantine, policy)
        self._checked = transaction.snapshot
        self._stream = SegmentStream(graph_first=graph_first, limit=MAX_TAKEN, charge=self.allowance.charge)
        self._graph_first = graph_first
        self._seen: list[GraphNode] = []
        self._segments = 0
        self._size = 0
        self._ended = False
        self.unwanted: Set[RevisionId] = frozenset()
        """New revisions of the body that were cut out of the pack."""
        self.entry: PackEntry | None = None
        """The pack of what is new, after `finish`; None where nothing is."""
        self._written = False
        """Whether the trailer of that pack was written."""

    def write(self, chunk: bytes | memoryview) -> None:
        """Check the next bytes of the body, cut anywhere.

        Raises:
            MissingParents, CorruptRecord, WrongParents, MissingReference, ConflictingRecord, LimitExceeded: refused.
            CorruptFile, TransportError: the store is damaged or failed.
        """
        self._size += len(chunk)
        came: list[tuple[RevisionId, bytes]] = []
        try:
            self._stream.feed(chunk)
            for content in self._stream.segments():
                node = decode_revision(content, 0)
                self._match(node)
                self._segments += 1
                came.append((node.revision, content))
        except Malformed as wrong:
            raise _malformed(self._segments, wrong) from wrong
        finally:
            before = self._intake.taken
            try:
                self._intake.take(came)
            except Malformed as wrong:
                raise _malformed(self._segments - len(came) + self._intake.taken - before, wrong) from wrong

    def graph(self) -> Sequence[GraphNode] | None:
        """The revisions of the body: what it announces, once that is here; without announcement all, after `finish`."""
        if self._graph_first:
            return self._stream.graph()
        return self._seen if self._ended else None

    @property
    def warnings(self) -> dict[str, tuple[int, Key]]:
        """Faults of what came that are no reason to refuse it: see `Judge.warnings`."""
        return self._intake.warnings

    def own_meta(self, revision: RevisionId) -> bytes | None:
        """The meta of the own record of a revision that came; None where it did not."""
        return self._intake.own_meta(revision)

    def fact(self, revision: RevisionId) -> bytes | None:
        """What the own record of a revision that came says of a tip there; None where it did not come."""
        return self._intake.fact(revision)

    def finish(self, segments: int, size: int) -> None:
        """Check that the body is whole, and end the pack. `segments`, `size`: what the body's end says it has.

        Raises:
            CorruptRecord: it has not, or lacks announced segments.
            MissingBase: bases that neither their revision nor an ancestor introduced.
        """
        try:
            self._stream.finish()
        except Malformed as wrong:
            raise CorruptRecord(b"", b"", str(wrong)) from wrong
        if (segments, size) != (self._segments, self._size):
            came = f"{self._segments} segments, {self._size} bytes"
            raise CorruptRecord(b"", b"", f"the body has {came}; its end says {segments} segments, {size} bytes")
        announced = self._stream.graph() if self._graph_first else None
        if announced is not None and len(announced) != self._segments:
            raise CorruptRecord(b"", b"", f"{len(announced)} revisions are announced, {self._segments} came")
        self._ended = True
        here.tally[STORED] += len(self._intake.left_out)
        here.tally[STORED_BYTES] += self._intake.bytes_left_out
        with span(Part.SERVER, "prove"):
            self.entry = self._intake.finish()

    def stale(self, snapshot: Snapshot | None) -> bool:
        """Whether what was checked must be checked again before it goes on top of `snapshot`."""
        before, count = self._checked, 0
        if before is not None:
            if snapshot is None or not snapshot.continues(before):
                return True  # Also where nothing was new: what was left out may be gone.
            count = before.graph.count
        if self.entry is None or snapshot is None or snapshot.graph.count == count:
            return False
        return self._intake.meets(snapshot, count)

    def check_again(
        self,
        transaction: Transaction,
        progress: Report = unreported,
        unwanted: Set[RevisionId] = frozenset(),
    ) -> None:
        """Check the pack against another snapshot: what landed meanwhile is cut out, and what is `unwanted`; bases are
        proved again.

        Raises:
            MissingParents: what was left out, because it was stored or unwanted, is neither any more.
            MissingBase, and as `write` and `finish`.
        """
        snapshot, left_out = transaction.snapshot, self._intake.left_out
        needed = [*left_out, *(each for each in self.unwanted if each not in unwanted)]
        gone = [each for each in needed if snapshot is None or snapshot.graph.ordinal(each) is None]
        if gone:
            raise MissingParents(gone[:KEYS_NAMED])
        if self.entry is None:
            self._checked = snapshot
            return
        quarantine = self._intake.quarantine
        assert quarantine is not None  # It holds the entry.
        intake = Intake(transaction, self._quarantine, self._policy)
        try:
            with contextlib.closing(quarantine.pack) as file:
                pack = PackReader(file, self.entry.length, quarantine.pack_path)
                for offset, content in pack.segments():
                    progress("check again", offset, self.entry.length)
                    revision = decode_revision(content, 0).revision
                    if revision not in unwanted:
                        intake.take([(revision, content)])
            entry = intake.finish()
        except BaseException:
            intake.discard()
            intake.release()
            raise
        self._intake.discard()
        self._intake.release()
        intake.left_out += left_out
        self.unwanted = unwanted
        self._intake, self._checked, self.entry, self._written = intake, snapshot, entry, False

    def write_down(self, trailer: Trailer) -> None:
        """Append to the new pack, if there is one, what the change is about to do, and make that durable; once."""
        if self.entry is not None and not self._written:
            self._intake.write_down(encode_trailer(trailer))
            self._written = True

    def publication(self) -> list[Step]:
        """The steps that move the pack among those of the repository, durably; no record names it yet."""
        return [] if self._intake.quarantine is None else self._intake.quarantine.publication()

    @property
    def published(self) -> list[str]:
        """The pack that was moved among the others, which a record is to name. Its index can be made again from it."""
        quarantine = self._intake.quarantine
        return [] if quarantine is None else [quarantine.pack_path]

    @property
    def small_files(self) -> dict[str, bytes]:
        """The same with their content, where they are small and in memory."""
        quarantine = self._intake.quarantine
        return {} if quarantine is None else quarantine.small_files

    @property
    def places(self) -> tuple[str, ...]:
        """Where the new pack and its index are at present."""
        quarantine = self._intake.quarantine
        return () if quarantine is None else (quarantine.pack_path, quarantine.index_path)

    @property
    def held_files(self) -> dict[str, bytes]:
        """The same with their content, where they are in memory."""
        quarantine = self._intake.quarantine
        return {} if quarantine is None else quarantine.held_files

    @property
    def written(self) -> int:
        """Bytes of the new pack so far."""
        return self._intake.written

    def leave(self) -> None:
        """Keep the published pack."""
        self._intake.release()

    def abandon(self) -> None:
        """Delete what was written, as far as that works; abandoning twice is harmless."""
        self._intake.discard()
        self._intake.release()

    def _match(self, segment: GraphNode) -> None:
        if not self._graph_first:
            self._seen.append(segment)
            return
        announced = self._stream.graph()
        if announced is None or self._segments >= len(announced):
            raise CorruptRecord(segment.revision, segment.revision, "its revision is not announced")
        if announced[self._segments] != (segment.revision, segment.parents):
            expected = shown(announced[self._segments].revision)
            raise CorruptRecord(
                segment.revision,
                segment.revision,
                f"segment {self._segments} is announced as {expected}, or with other parents",
            )


def _malformed(number: int, wrong: Malformed) -> CorruptRecord:
    return CorruptRecord(b"", b"", f"segment {number} of the stream: {wrong}")
