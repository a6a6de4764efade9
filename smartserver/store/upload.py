"""An upload: turns the bytes of one body into a pack of its new revisions in quarantine.

The segments must be those announced, in that order, and as many as the end of the body says. Revisions that another
push stored meanwhile are cut out of the pack before it is published.
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
from smartserver.store.incoming import KEYS_NAMED, UploadValidator
from smartserver.store.pack import PackReader
from smartserver.store.quarantine import Quarantine
from smartserver.store.record import PackEntry
from smartserver.store.snapshot import Snapshot
from smartserver.store.trailer import Trailer, encode_trailer
from smartserver.store.transaction import Transaction

Report = Callable[[str, int, int], None]
"""A function that is called with the phase, the part done, and the whole (0 if unknown)."""


def unreported(phase: str, done: int, total: int) -> None:
    """Ignore a report."""


class Upload:
    """The upload of one body: checks its bytes and writes a pack to quarantine."""

    def __init__(
        self,
        transaction: Transaction,
        quarantine: Callable[[], Quarantine],
        *,
        graph_first: bool,
        policy: Policy = SAFE,
    ) -> None:
        """`transaction`: the transaction against which segments are checked. `quarantine`: creates a `Quarantine` when
        the first new segment arrives. `graph_first`: True if the body begins with its graph."""
        self.allowance = transaction.allowance
        self._quarantine = quarantine
        self._policy = policy
        self._validator = UploadValidator(transaction, quarantine, policy)
        self._checked = transaction.snapshot
        self._stream = SegmentStream(graph_first=graph_first, limit=MAX_TAKEN, charge=self.allowance.charge)
        self._graph_first = graph_first
        self._seen: list[GraphNode] = []
        self._segments = 0
        self._size = 0
        self._ended = False
        self.unwanted: Set[RevisionId] = frozenset()
        """New revisions of the body that were cut out of the pack."""
        self._metas_and_facts: dict[RevisionId, tuple[bytes | None, bytes | None]] = {}
        """The results of `own_meta` and `fact` for each revision in `unwanted`. If the calls of the request are run
        again, they must refuse the same ref for the same reason."""
        self.entry: PackEntry | None = None
        """The entry of the new pack, after `finish`; None if the body had nothing new."""
        self._written = False
        """True if the trailer of the new pack was written."""

    def write(self, chunk: bytes | memoryview) -> None:
        """Check the next bytes of the body. A chunk may end inside a segment."""
        self._size += len(chunk)
        came: list[tuple[RevisionId, bytes]] = []
        try:
            self._stream.feed(chunk)
            for content in self._stream.segments():
                node = decode_revision(content, 0)
                self._match(node)
                self._segments += 1
                came.append((node.revision, content))
        except Malformed as error:
            raise _malformed(self._segments, error) from error
        finally:
            before = self._validator.taken
            try:
                self._validator.take(came)
            except Malformed as error:
                raise _malformed(self._segments - len(came) + self._validator.taken - before, error) from error

    def graph(self) -> Sequence[GraphNode] | None:
        """Return the revisions of the body; None until its graph has arrived or, if it has no graph, until `finish`."""
        if self._graph_first:
            return self._stream.graph()
        return self._seen if self._ended else None

    @property
    def warnings(self) -> dict[str, tuple[int, Key]]:
        """The faults of received records for which the policy does not refuse them; see `Judge.warnings`."""
        return self._validator.judge.warnings

    def own_meta(self, revision: RevisionId) -> bytes | None:
        """Return the meta of the own record of a new revision of the body; None for any other revision."""
        cut = self._metas_and_facts.get(revision)
        return self._validator.own_meta(revision) if cut is None else cut[0]

    def fact(self, revision: RevisionId) -> bytes | None:
        """Return the `System.tip_fact` of a new revision of the body; None for any other revision."""
        cut = self._metas_and_facts.get(revision)
        return self._validator.fact(revision) if cut is None else cut[1]

    def finish(self, segments: int, size: int) -> None:
        """Check that the body is complete, and end the pack. `segments`, `size`: the number of segments and bytes that
        the end of the body states."""
        try:
            self._stream.finish()
        except Malformed as error:
            raise CorruptRecord(b"", b"", str(error)) from error
        if (segments, size) != (self._segments, self._size):
            came = f"{self._segments} segments, {self._size} bytes"
            raise CorruptRecord(b"", b"", f"the body has {came}, but its end states {segments} and {size}")
        announced = self._stream.graph() if self._graph_first else None
        if announced is not None and len(announced) != self._segments:
            raise CorruptRecord(b"", b"", f"{self._segments} revisions came, but {len(announced)} were announced")
        self._ended = True
        here.tally[STORED] += len(self._validator.left_out)
        here.tally[STORED_BYTES] += self._validator.bytes_left_out
        with span(Part.SERVER, "prove"):
            self.entry = self._validator.finish()

    def stale(self, snapshot: Snapshot | None) -> bool:
        """Tell whether the pack must be checked again before a commit on `snapshot`."""
        before, count = self._checked, 0
        if before is not None:
            if snapshot is None or not snapshot.continues(before):
                return True  # Even if nothing was new: revisions that were left out may be gone.
            count = before.graph.count
        if self.entry is None or snapshot is None or snapshot.graph.count == count:
            return False
        return self._validator.meets(snapshot, count)

    def check_again(self, transaction: Transaction, progress: Report, unwanted: Set[RevisionId]) -> None:
        """Check the pack against another snapshot. Revisions that were stored meanwhile or are `unwanted` are cut out,
        and bases are proved again.

        Raises:
            MissingParents: the pack lacks a revision because it was stored or unwanted before, and now it is neither.
        """
        snapshot, left_out = transaction.snapshot, self._validator.left_out
        needed = [*left_out, *(revision for revision in self.unwanted if revision not in unwanted)]
        gone = [revision for revision in needed if snapshot is None or snapshot.graph.ordinal(revision) is None]
        if gone:
            raise MissingParents(gone[:KEYS_NAMED])
        if self.entry is None:
            self._checked = snapshot
            return
        quarantine = self.quarantine
        assert quarantine is not None  # It has the pack of `entry`.
        validator = UploadValidator(transaction, self._quarantine, self._policy)
        try:
            with contextlib.closing(quarantine.pack) as file:
                pack = PackReader(file, self.entry.length, quarantine.pack_path)
                for offset, content in pack.segments():
                    progress("check again", offset, self.entry.length)
                    revision = decode_revision(content, 0).revision
                    if revision not in unwanted:
                        validator.take([(revision, content)])
            entry = validator.finish()
        except BaseException:
            validator.discard()
            raise
        kept = {revision: (self.own_meta(revision), self.fact(revision)) for revision in unwanted}
        self._validator.discard()
        validator.left_out += left_out
        self.unwanted, self._metas_and_facts = unwanted, kept
        self._validator, self._checked, self.entry, self._written = validator, snapshot, entry, False

    def write_down(self, trailer: Trailer) -> None:
        """Append the trailer to the new pack, if the upload has a pack, and make it durable. A second call does
        nothing."""
        draft = self._validator.draft
        if self.entry is not None and draft is not None and not self._written:
            draft.write_down(encode_trailer(trailer))
            self._written = True

    @property
    def quarantine(self) -> Quarantine | None:
        """The quarantine of the new pack; None while the body contains nothing new."""
        return None if self._validator.draft is None else self._validator.draft.quarantine

    @property
    def written(self) -> int:
        """The number of bytes of the new pack so far."""
        return 0 if self._validator.draft is None else self._validator.draft.length

    def leave(self) -> None:
        """Release memory, and keep the pack in `packs`."""
        self._validator.release()

    def abandon(self) -> None:
        """Delete the pack, ignoring errors of the store. A second call does nothing."""
        self._validator.discard()

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


def _malformed(number: int, error: Malformed) -> CorruptRecord:
    return CorruptRecord(b"", b"", f"segment {number} of the stream: {error}")
