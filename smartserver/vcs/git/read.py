"""Makes the segments of a push: each planned revision with its new records.

Texts are read in the order in which they are sent. So only two chunks of the plan and the writer's own cache are in
memory, and some 60 bytes for each object: its key is remembered, as its text is read only once.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Self

from smartserver.records import limits
from smartserver.records.bases import Candidate, HeldRecord, NewRecord, SegmentWriter
from smartserver.records.keys import KeyTable
from smartserver.records.model import GraphNode, Key, RevisionId
from smartserver.vcs.base import CannotSend
from smartserver.vcs.collector import rare_collections
from smartserver.vcs.git.objects import (
    BLOB,
    METAS,
    TYPE_NAMES,
    GitObject,
    MissingObject,
    ObjectReader,
    ObjectStream,
    ReadingEnded,
    TooLarge,
)
from smartserver.vcs.git.plan import (
    Introduced,
    Revision,
    Revisions,
    cannot_send,
    graph_of,
    introduced,
    parents_of,
    revisions,
)
from smartserver.vcs.git.repository import GitRepository
from smartserver.vcs.sending import Job, segment, segments_in_thread

FEW = 64
"""The most revisions for which trees are compared in this process, because starting another process takes about as
long. The writer then uses the direct predecessor as base."""

_CACHE = 32 << 20
"""The most bytes of texts that are cached as possible bases. Git must read evicted texts again. Twice as much saves no
time."""

_CHUNK = 5_000
"""The least number of objects that are requested at once from a process that reads ahead. With fewer, git caches too
few of its own bases."""


class _Chunk(NamedTuple):
    """Revisions whose objects are being read."""

    revisions: list[tuple[Revision, list[Introduced]]]
    unread: set[Key]
    """The keys of the objects that were not read yet."""
    objects: ObjectStream | Generator[GitObject]
    """Yields the objects of the chunk, except those of earlier chunks, in the order of `revisions`."""


class GitPlan:
    """The content of a push of `tips` to a server that has `haves`. A plan is used for one repository only."""

    def __init__(self, repository: GitRepository, sending: Revisions, excluded: frozenset[Key] = frozenset()) -> None:
        self._repository = repository
        self._sending = sending
        self._excluded = excluded
        self._partial = repository.is_partial
        self.graph: Sequence[GraphNode] = graph_of(sending)

    @property
    def bulk(self) -> bool:
        """True if the push has more than `FEW` revisions."""
        return len(self._sending) > FEW

    def without_bases(self, keys: Collection[Key]) -> Self:
        """Return the same plan with none of `keys` as a delta base."""
        return type(self)(self._repository, self._sending, self._excluded | frozenset(keys))

    def segments(self) -> Iterator[bytes]:
        """Yield the segments in the order of `graph`. A segment with a large object is yielded in parts. The method may
        be called again."""
        with rare_collections():
            yield from self._segments()

    def _segments(self) -> Iterator[bytes]:
        if not self.bulk:
            yield from self._segments_on(self._repository.objects)
            return
        # The writer's thread needs a reader of its own: it reads while this thread does.
        with contextlib.closing(ObjectReader(self._repository.start)) as bases:
            yield from self._segments_on(bases)

    def _segments_on(self, bases: ObjectReader) -> Iterator[bytes]:
        """Yield the segments. `bases` reads the texts of bases that were dropped from the cache or are not sent."""
        repository = self._repository

        def text(kind: int, key: Key) -> bytes:
            return bases.read(key).text

        writer = SegmentWriter(repository.kinds, bulk=self.bulk, texts=text, cache=_CACHE)
        try:
            with contextlib.closing(self._jobs()) as jobs:
                if self.bulk:
                    yield from segments_in_thread(writer, jobs)
                else:
                    yield from chain.from_iterable(segment(writer, job) for job in jobs)
        except (MissingObject, ReadingEnded) as error:
            raise cannot_send(repository, error) from error
        finally:
            writer.abandon()  # Its thread asks `bases`, which the caller closes next.

    def _jobs(self) -> Generator[Job]:
        """Yield each revision with its records."""
        odd: dict[Key, bytes] = {}
        reading: deque[_Chunk] = deque()
        try:
            for chunk in self._begin_reading():
                reading.append(chunk)
                if len(reading) > 1:  # The objects of the next chunk are read meanwhile.
                    yield from self._jobs_of(reading[0], odd)
                    reading[0].objects.close()
                    reading.popleft()
            for chunk in reading:
                yield from self._jobs_of(chunk, odd)
        finally:
            for chunk in reading:
                chunk.objects.close()

    def _begin_reading(self) -> Iterator[_Chunk]:
        """Begin to read the objects of the plan, a chunk at a time."""
        repository = self._repository
        plan = zip(self._sending, introduced(repository, self._sending, bulk=self.bulk), strict=True)
        asked = KeyTable()
        for part in _cut(plan):
            keys = []
            for _, records in part:
                for record in records:
                    count = len(asked)
                    if asked.number(record.key) == count:
                        keys.append(record.key)
            if self.bulk:
                yield _Chunk(part, set(keys), ObjectStream(repository.start, keys, limits.MAX_TAKEN))
            else:
                objects = (repository.objects.read(key, limits.MAX_TAKEN) for key in keys)
                yield _Chunk(part, set(keys), objects)

    def _jobs_of(self, chunk: _Chunk, odd: dict[Key, bytes]) -> Iterator[Job]:
        for revision, records in chunk.revisions:
            items = (self._record(revision, record, chunk.objects, chunk.unread, odd) for record in records)
            yield Job(_named(revision), revision.id, parents_of(revision), items)

    def _record(
        self,
        revision: Revision,
        record: Introduced,
        objects: Iterator[GitObject],
        unread: set[Key],
        odd: dict[Key, bytes],
    ) -> NewRecord | HeldRecord:
        """Return a record for the writer. `odd`: the metas of objects whose type differs from the type in their
        trees."""
        candidates = [Candidate(key, None) for key in record.candidates if key not in self._excluded]
        if self._partial and record.type == BLOB:
            candidates = []  # If asked for a blob that was not fetched, git would end.
        if record.key not in unread:  # The texts of most copies are never needed.
            meta = odd.get(record.key) or METAS[record.type]
            return HeldRecord(0, record.key, meta, candidates, record.path)
        try:
            found = next(objects)
        except TooLarge as error:
            raise _too_large(revision, record, error.size) from error
        unread.remove(record.key)
        meta = METAS[found.type]
        if found.type != record.type:
            odd[record.key] = meta
        return NewRecord(0, record.key, meta, found.text, candidates, record.path, found.parts)


def _too_large(revision: Revision, record: Introduced, size: int) -> CannotSend:
    """Return the error that refuses a large object, with the path by which the user knows it."""
    what = f"{TYPE_NAMES[record.type].decode('ascii')} {record.key.hex()}"
    if record.path:
        what = f"{record.path.decode('utf-8', 'backslashreplace')!r} ({what})"
    where = "" if record.key == revision.id else f" of {_named(revision)}"
    return CannotSend(f"cannot push {what}{where}: it has {size} bytes, expected no more than {limits.MAX_TAKEN}")


def _named(revision: Revision) -> str:
    return f"{TYPE_NAMES[revision.type].decode('ascii')} {revision.id.hex()}"


def _cut(pairs: Iterable[tuple[Revision, list[Introduced]]]) -> Iterator[list[tuple[Revision, list[Introduced]]]]:
    chunk: list[tuple[Revision, list[Introduced]]] = []
    count = 0
    for pair in pairs:
        chunk.append(pair)
        count += len(pair[1])
        if count >= _CHUNK:
            yield chunk
            chunk, count = [], 0
    if chunk:
        yield chunk


def plan(repository: GitRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> GitPlan:
    """Return the plan of a push after which a server that has `haves` also has `tips`."""
    repository.objects.open()  # It gets ready while revisions are listed.
    return GitPlan(repository, revisions(repository, tips, haves))
