"""`Received`: the changesets of one answer. A clone passes them to Mercurial while they are received."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from smartserver.plugins.mercurial.words import refusal
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.segment import SegmentStream
from smartserver.spans import Part, spent
from smartserver.vcs.hg.insert import Arrived
from smartserver.vcs.hg.repository import HgRepository


class Received:
    """The changesets of one answer, which wait in a file until Mercurial's own code takes them as a changegroup."""

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
        self._coming: Iterator[bytes] | None = self._segments(body)
        """The segments, until somebody receives them."""

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
    def is_coming(self) -> bool:
        """True if nothing was received yet."""
        return self._coming is not None

    @property
    def parents(self) -> dict[bytes, tuple[bytes, ...]]:
        """The changesets and their parents, in the order of arrival. All are received first."""
        self.receive()
        return self._arrived.parents

    @spent(Part.LOCAL, "keep what came")
    def receive(self) -> None:
        """Receive all segments into the file, unless that was done."""
        segments, self._coming = self._coming, None
        if segments is not None:
            with self._words():
                for segment in segments:
                    self._arrived.add(segment)

    def changegroup(self, nodes: Collection[bytes] | None) -> Iterator[bytes]:
        """Yield the changegroup of some changesets; None for all, of which those that were not received yet are
        received while it is read."""
        segments, self._coming = self._coming, None
        with self._words():
            if segments is not None:
                yield from self._arrived.chunks_of_clone(segments)
            else:
                yield from self._arrived.chunks_apart(self._arrived.parents if nodes is None else set(nodes))

    def close(self) -> None:
        """Remove the file."""
        self._arrived.close()
