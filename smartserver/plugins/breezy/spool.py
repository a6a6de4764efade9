"""`Spool`: the revisions of a pull's answer, written to a temporary file as they arrive, then inserted into a
repository.

Receiving and inserting are two steps because a write group of Breezy's must not wait for a server: other commands of
the user would wait for its lock. Revisions that arrived before a connection was lost are complete, and are inserted as
well.
"""

from __future__ import annotations

import errno
import tempfile
import weakref
from collections.abc import Container, Iterator, Sequence
from typing import IO, Any, Final

from smartserver.client.exchange import PullAnswer
from smartserver.client.medium import MediumError
from smartserver.errors import CorruptRecord
from smartserver.plugins.breezy.terminal import moving
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.model import RevisionId
from smartserver.records.segment import SegmentStream, decode_revision
from smartserver.records.varint import Malformed
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk."""

IN_MEMORY: Final = 4 << 20
"""The most bytes of an answer that are kept in memory. A larger answer is written to a file."""


class Spool:
    """The revisions of an answer that were received."""

    def __init__(self, pulled: PullAnswer) -> None:
        self._body = pulled.body
        self.announced = pulled.result.segments
        self.size = pulled.result.size
        self.broken: BaseException | None = None
        """The error that ended the answer early; None if the answer is complete."""
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._places: dict[RevisionId, tuple[int, int]] = {}
        """The place and the length of each revision's segment in the file."""
        self._end = 0

    def receive(self) -> None:
        """Receive the answer. If the connection fails, the revisions that were received before are kept.

        Raises:
            OSError: the revisions cannot be written; the error names the folder.
        """
        try:
            for revision, segment in self._receive():
                self._file.write(segment)
                self._places[revision] = (self._end, len(segment))
                self._end += len(segment)
        except (CodedError, MediumError, ProtocolError, Malformed, KeyboardInterrupt) as error:
            self.broken = error
        except OSError as error:
            if error.errno in FULL and error.filename is None:
                error.filename = tempfile.gettempdir()  # The file has no name.
            raise

    @property
    def revisions(self) -> Sequence[RevisionId]:
        """The received revisions, parents before children."""
        return list(self._places)

    def insert_into(self, repository: Any) -> None:
        """Insert the revisions into a repository that has their parents, except those that it has already.

        Another process may have inserted the same revisions meanwhile. Breezy would write a pack of the same name
        again, over one that others read.
        """
        from smartserver.vcs.bzr.insert import insert

        with repository.lock_read():
            present = repository.get_parent_map(self.revisions)
        if len(present) < len(self._places):
            insert(BrzRepository(repository), self.segments(present))

    def segments(self, present: Container[RevisionId] = ()) -> Iterator[bytes]:
        """Yield the segments of all stored revisions that are not in `present`."""
        for revision, (at, size) in self._places.items():
            if revision not in present:
                self._file.seek(at)
                yield self._file.read(size)

    def _receive(self) -> Iterator[tuple[RevisionId, bytes]]:
        stream = SegmentStream(graph_first=False, limit=MAX_TAKEN)
        received = 0
        came: set[RevisionId] = set()
        outside: set[RevisionId] = set()
        with moving("Receiving revisions") as moved:
            for chunk in self._body:
                stream.feed(chunk)
                received += len(chunk)
                for segment in stream.segments():
                    header = decode_revision(segment, 0)  # The rest is read as it is inserted.
                    outside.update([parent.id for parent in header.parents if parent.id not in came])
                    if header.revision in outside:
                        raise CorruptRecord(header.revision, b"", "came after a revision whose parent it is")
                    came.add(header.revision)
                    yield header.revision, segment
                moved(received, len(came), self.announced)
        stream.finish()
        if len(came) != self.announced:
            raise CorruptRecord(b"", b"", f"the server sent {len(came)} revisions, having announced {self.announced}")
