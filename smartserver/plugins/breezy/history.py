"""`History`: the revisions a pull brings, spooled to a file as they come, so that any part of them can be inserted.

Breezy asks for the tip before it says where the history goes to, and `-r` takes only a part of what comes.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO

from smartserver.errors import CorruptRecord
from smartserver.plugins.breezy.terminal import moving
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.model import Kind, RevisionId
from smartserver.records.segment import SegmentStream, decode_revision
from smartserver.spans import Part, spent

IN_MEMORY = 4 * 1024 * 1024
"""Bytes of a spool before it becomes a file."""


class History:
    """What an unread body holds; it is received when it is first asked for."""

    def __init__(self, body: Iterator[bytes], count: int, kinds: Sequence[Kind]) -> None:
        """`count`: the revisions announced."""
        self.count = count
        self._body: Iterator[bytes] | None = body
        self._kinds = kinds
        self._spool: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._spool.close)  # Breezy says nowhere that it needs a branch no more.
        self._places: dict[RevisionId, tuple[int, int]] = {}
        self._parents: dict[RevisionId, tuple[RevisionId, ...]] = {}
        self._ghosts: set[RevisionId] = set()
        self._ends: dict[RevisionId, RevisionId] = {}
        """Where the line of first parents from a revision leads."""
        self._wrong: BaseException | None = None
        """Why it did not come whole."""
        self.size = 0
        """Bytes of what came so far."""

    @property
    def parents(self) -> Mapping[RevisionId, tuple[RevisionId, ...]]:
        """The parents of each revision, ghosts among them; parents come before children.

        Raises:
            CodedError, MediumError, ProtocolError, Malformed: it could not be received whole.
        """
        self.receive()
        return self._parents

    @property
    def ghosts(self) -> Collection[RevisionId]:
        """The parents that are nowhere.

        Raises:
            CodedError, MediumError, ProtocolError, Malformed: as `parents`.
        """
        self.receive()
        return self._ghosts

    @spent(Part.LOCAL, "keep what came")
    def receive(self) -> None:
        """Receive all of it, unless that is done; it raises as `parents`, and the same however often it is asked."""
        body, self._body = self._body, None
        if self._wrong is not None:
            raise self._wrong
        if body is None:
            return
        try:
            self._spool_all(body)
        except BaseException as wrong:  # What came of it must never be taken for all of it.
            self._wrong = wrong
            raise

    def _spool_all(self, body: Iterator[bytes]) -> None:
        outside: set[RevisionId] = set()
        for segment in self._segments(body):
            header = decode_revision(segment, 0)  # The rest is read by whoever inserts it.
            outside.update([parent.id for parent in header.parents if parent.id not in self._places])
            if header.revision in outside:
                raise CorruptRecord(header.revision, b"", "came after a revision whose parent it is")
            self._spool.write(segment)
            self._places[header.revision] = (self.size, len(segment))
            self._parents[header.revision] = tuple([parent.id for parent in header.parents])
            self._ghosts.update([parent.id for parent in header.parents if parent.absent])
            self.size += len(segment)
        if len(self._places) != self.count:
            raise CorruptRecord(
                b"", b"", f"the server sent {len(self._places)} revisions, having announced {self.count}"
            )

    def _segments(self, body: Iterator[bytes]) -> Iterator[bytes]:
        stream = SegmentStream(self._kinds, graph_first=False, limit=MAX_TAKEN)
        came = 0
        with moving("Receiving revisions") as moved:
            for chunk in body:
                stream.feed(chunk)
                came += len(chunk)
                yield from stream.segments()
                moved(came, len(self._places), self.count)
        stream.finish()

    def segments(self, revisions: Collection[RevisionId]) -> Iterator[bytes]:
        """The segments of those of `revisions` that came, parents first."""
        for revision in self.parents:
            if revision in revisions:
                at, size = self._places[revision]
                self._spool.seek(at)
                yield self._spool.read(size)

    def rests_on(self, revisions: Iterable[RevisionId]) -> set[RevisionId]:
        """Parents of `revisions` that did not come, because whoever asked was thought to have them."""
        parents = self.parents
        return {
            parent
            for revision in revisions
            for parent in parents.get(revision, ())
            if parent not in parents and parent not in self._ghosts
        }

    def ends_at_ghost(self, revision: RevisionId) -> bool:
        """Whether the line of first parents from a revision that came leads to one that is nowhere."""
        parents = self.parents
        if revision not in self._ends:
            at = revision
            while parents.get(at):
                at = parents[at][0]
            self._ends[revision] = at
        return self._ends[revision] in self._ghosts

    def reached(self, heads: Collection[RevisionId]) -> list[RevisionId]:
        """The revisions that came and are ancestors of `heads`, these included, parents first."""
        parents = self.parents
        found: set[RevisionId] = set()
        todo = list(heads)
        while todo:
            revision = todo.pop()
            if revision in parents and revision not in found:
                found.add(revision)
                todo += parents[revision]
        return [revision for revision in parents if revision in found]
