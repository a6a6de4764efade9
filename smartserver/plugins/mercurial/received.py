"""`Received`: the changesets of one answer. A clone passes them to Mercurial while they are received."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from mercurial import error

from smartserver.plugins.mercurial.words import refusal
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.segment import SegmentStream
from smartserver.spans import Part, spent
from smartserver.vcs.hg.insert import Arrived
from smartserver.vcs.hg.repository import HgRepository


class Received:
    """The changesets of one answer, which Mercurial's own code takes as a changegroup. They wait in a file until then,
    except those of a clone."""

    def __init__(
        self,
        local: HgRepository | None,
        body: Iterable[bytes],
        count: int,
        progress: Any,
        words: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`body`: the segments of `count` changesets. `progress`: one of Mercurial's progress bars, which counts them.
        `words`: returns a context that raises Mercurial's errors."""
        self.count = count
        self._arrived = Arrived(local)
        self._progress = progress
        self._words = words
        self._unread: Iterator[bytes] | None = self._segments(body)
        self._error: Exception | None = None

    def _segments(self, body: Iterable[bytes]) -> Iterator[bytes]:
        stream = SegmentStream(graph_first=False, limit=MAX_TAKEN)
        received = self._arrived.parents
        with self._progress as progress:
            for chunk in body:
                stream.feed(chunk)
                yield from stream.segments()
                progress.update(len(received))
            stream.finish()
        if len(received) != self.count:
            raise refusal(f"the server sent {len(received)} changesets, having announced {self.count}")

    @property
    def is_unread(self) -> bool:
        """True if no part of the answer was read yet."""
        return self._unread is not None

    @property
    def parents(self) -> dict[bytes, tuple[bytes, ...]]:
        """The changesets and their parents, in the order of arrival. An unread answer is received first."""
        self.receive()
        return self._arrived.parents

    @spent(Part.LOCAL, "keep what came")
    def receive(self) -> None:
        """Receive all segments into the file, unless the answer was read before."""
        with self._remembering():
            for segment in self._take():
                self._arrived.add(segment)

    def changegroup(self, nodes: Collection[bytes] | None) -> Iterator[bytes]:
        """Yield the changegroup of some changesets, or (None) of all. If the answer was not read yet, it is received
        meanwhile."""
        with self._remembering():
            if nodes is None and self.is_unread:
                yield from self._arrived.chunks_of_clone(self._take())
            else:
                yield from self._arrived.chunks(self._arrived.parents if nodes is None else nodes)

    def check(self) -> None:
        """Raise the error with which the answer ended, if it did."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Remove the file."""
        self._arrived.close()

    def _take(self) -> Iterable[bytes]:
        segments, self._unread = self._unread, None
        return segments or ()

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        """Convert errors to Mercurial's. After an error, each later use of this object raises it again."""
        self.check()
        try:
            with self._words():
                yield
        except (error.Abort, error.RepoError) as cause:
            self._error = cause
            raise
