"""Makes the segments of a push: each planned revision with its new records.

Texts are read in the order in which they are sent. So only a chunk of the plan and the writer's own cache are in
memory, however long the history is.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Self

from smartserver.errors import LimitExceeded
from smartserver.records import limits
from smartserver.records.bases import Candidate, HeldRecord, NewRecord, SegmentWriter
from smartserver.records.keys import KeyTable
from smartserver.records.model import GraphNode, Key, RevisionId
from smartserver.records.varint import decode
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

FEW = 64
"""The most revisions for which trees are compared in this process, since starting another costs about as much. The
writer then uses the direct predecessor as base."""

_CACHE = 32 << 20
"""Bytes of texts that are cached as bases; git reads dropped ones again. Twice as much saves no time."""

_CHUNK = 5_000
"""The number of objects that a process which reads ahead is asked for at once. With fewer, git caches too few of its
own bases."""

_HELD = 4 << 20
"""If a revision's texts have fewer bytes, all of them are read before its segment is begun."""


Job = tuple[Revision, Iterator[NewRecord | HeldRecord]]
"""A revision, and an iterator that reads the records which it introduced."""


class _Chunk(NamedTuple):
    """Revisions whose objects are being read."""

    revisions: list[tuple[Revision, list[Introduced]]]
    unread: set[Key]
    """The keys of the objects that were not read yet."""
    objects: ObjectStream | Generator[GitObject]
    """The objects that no earlier chunk has."""


class GitPlan:
    """The content of a push of `tips` to a server that holds `haves`; one plan belongs to one repository."""

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
        """Yield the segments in the order of `graph`, one with a large object in parts. It may be called again."""
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
                yield from _made_behind(writer, jobs) if self.bulk else _made(writer, jobs)
        except (MissingObject, ReadingEnded) as error:
            raise cannot_send(repository, error) from error
        finally:
            writer.abandon()  # Its thread asks `bases`, which the caller closes next.

    def _jobs(self) -> Generator[Job]:
        """Yield each revision with its records."""
        odd: dict[Key, bytes] = {}
        reading: deque[_Chunk] = deque()
        try:
            for chunk in self._chunks():
                reading.append(chunk)
                if len(reading) > 1:  # The objects of the next chunk are read meanwhile.
                    yield from self._jobs_of(reading[0], odd)
                    reading.popleft().objects.close()
            for chunk in reading:
                yield from self._jobs_of(chunk, odd)
        finally:
            for chunk in reading:
                chunk.objects.close()

    def _chunks(self) -> Iterator[_Chunk]:
        """Begin to read the objects of the plan, a chunk at a time."""
        repository = self._repository
        plan = zip(self._sending, introduced(repository, self._sending, bulk=self.bulk), strict=True)
        asked = KeyTable()
        for chunk in _chunks(plan):
            keys = []
            for _, records in chunk:
                for record in records:
                    count = len(asked)
                    if asked.number(record.key) == count:
                        keys.append(record.key)
            if self.bulk:
                yield _Chunk(chunk, set(keys), ObjectStream(repository.start, keys, limits.MAX_TAKEN))
            else:
                objects = (repository.objects.read(key, limits.MAX_TAKEN) for key in keys)
                yield _Chunk(chunk, set(keys), objects)

    def _jobs_of(self, chunk: _Chunk, odd: dict[Key, bytes]) -> Iterator[Job]:
        for revision, records in chunk.revisions:
            yield revision, (self._record(revision, record, chunk.objects, chunk.unread, odd) for record in records)

    def _record(
        self,
        revision: Revision,
        record: Introduced,
        objects: Iterator[GitObject],
        unread: set[Key],
        odd: dict[Key, bytes],
    ) -> NewRecord | HeldRecord:
        """Return a record for the writer. `odd`: the metas of objects whose type is not what their trees say."""
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


def _made(writer: SegmentWriter, jobs: Iterable[Job]) -> Iterator[bytes]:
    """Yield segments in parts, each made before the next one is read."""
    for revision, items in jobs:
        yield from _segment(writer, revision, items)


def _made_behind(writer: SegmentWriter, jobs: Iterable[Job]) -> Iterator[bytes]:
    """Yield segments in parts. The writer's thread makes small ones while the next revisions are read."""
    waiting: deque[Revision] = deque()
    for revision, items in jobs:
        held: list[NewRecord | HeldRecord] = []
        size = 0
        for item in items:
            held.append(item)
            size += len(item.text) + _HELD * (item.parts is not None) if isinstance(item, NewRecord) else 0
            if size >= _HELD:
                yield from _taken(writer, waiting, wait=True)
                yield from _segment(writer, revision, chain(held, items))
                break
        else:
            waiting.append(revision)
            writer.put(revision.id, parents_of(revision), held)
            yield from _taken(writer, waiting, wait=False)
    yield from _taken(writer, waiting, wait=True)


def _taken(writer: SegmentWriter, waiting: deque[Revision], *, wait: bool) -> Iterator[bytes]:
    """Yield the segments that the writer's thread has made. With `wait`, wait for all, so that the writer is free."""
    while True:
        try:
            made = writer.take(wait)
        except LimitExceeded as error:
            raise _over(waiting[0], error) from error
        for parts in made:
            yield from _checked(waiting.popleft(), parts)
        if not (wait and waiting):
            break


def _segment(writer: SegmentWriter, revision: Revision, items: Iterable[NewRecord | HeldRecord]) -> list[bytes]:
    """Return the segment of a revision in parts. Raise CannotSend if a server would refuse it."""
    try:
        parts = writer.parts(revision.id, parents_of(revision), items)
    except LimitExceeded as error:
        raise _over(revision, error) from error
    return _checked(revision, parts)


def _over(revision: Revision, error: LimitExceeded) -> CannotSend:
    return CannotSend(f"cannot push {_named(revision)}: {error}")


def _checked(revision: Revision, parts: list[bytes]) -> list[bytes]:
    """Return the parts of a segment. Raise CannotSend if a server would refuse it."""
    size, _ = decode(parts[0], 0)
    if size > limits.MAX_TAKEN:
        raise CannotSend(
            f"cannot push {_named(revision)}: its new content has {size} bytes (compressed), expected no more than "
            f"{limits.MAX_TAKEN} in one commit"
        )
    return parts


def _too_large(revision: Revision, record: Introduced, size: int) -> CannotSend:
    """Return the refusal to push a large object, with the path by which its user knows it."""
    what = f"{TYPE_NAMES[record.type].decode('ascii')} {record.key.hex()}"
    if record.path:
        what = f"{record.path.decode('utf-8', 'backslashreplace')!r} ({what})"
    where = "" if record.key == revision.id else f" of {_named(revision)}"
    return CannotSend(f"cannot push {what}{where}: it has {size} bytes, expected no more than {limits.MAX_TAKEN}")


def _named(revision: Revision) -> str:
    return f"{TYPE_NAMES[revision.type].decode('ascii')} {revision.id.hex()}"


def _chunks(pairs: Iterable[tuple[Revision, list[Introduced]]]) -> Iterator[list[tuple[Revision, list[Introduced]]]]:
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
    """Return the plan of a push after which a server that holds `haves` also holds `tips`."""
    repository.objects.open()  # It gets ready while revisions are listed.
    return GitPlan(repository, revisions(repository, tips, haves))
