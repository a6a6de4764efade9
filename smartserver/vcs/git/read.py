"""A push: the planned revisions, each with its new records, as segments ready to send.

Texts are read in the order they are sent, so no more than a chunk of the plan and the writer's own cache is in memory,
however long the history.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Self

from smartserver.errors import LimitExceeded
from smartserver.records import limits
from smartserver.records.bases import Candidate, HeldRecord, NewRecord, SegmentWriter
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
    ReadingEnded,
    TooLarge,
    stream,
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
"""Revisions up to which trees are compared here, and the writer uses the direct predecessor as base: starting another
process costs about as much."""

_CACHE = 32 << 20
"""Bytes of text kept as bases; git gives dropped ones again. The double of it saves no time, and takes 50 MB more."""

_CHUNK = 20_000
"""Objects asked for at once of a process that reads ahead."""

_HELD = 4 << 20
"""Bytes of texts of a revision up to which they are read before its segment is begun."""


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
        """True if it is long enough for the ways of a bulk push."""
        return len(self._sending) > FEW

    def without_bases(self, keys: Collection[Key]) -> Self:
        """The same plan, using none of `keys` as a delta base."""
        return type(self)(self._repository, self._sending, self._excluded | frozenset(keys))

    def segments(self) -> Iterator[bytes]:
        """Segments in the order of `graph`, one with a large object in parts; may be asked for again."""
        with rare_collections():
            yield from self._segments()

    def _segments(self) -> Iterator[bytes]:
        if not self.bulk:
            yield from self._segments_on(self._repository.objects)
            return
        # A reader of its own: the writer's thread reads while this one does.
        with contextlib.closing(ObjectReader(self._repository.start)) as bases:
            yield from self._segments_on(bases)

    def _segments_on(self, bases: ObjectReader) -> Iterator[bytes]:
        """The segments. `bases`: reads texts that are bases and were dropped, or are not sent."""
        repository = self._repository

        def text(kind: int, key: Key) -> bytes:
            return bases.read(key).text

        writer = SegmentWriter(repository.kinds, bulk=self.bulk, texts=text, cache=_CACHE)
        pairs = zip(self._sending, introduced(repository, self._sending, bulk=self.bulk), strict=True)
        odd: dict[Key, bytes] = {}
        try:
            for chunk in _chunks(pairs):
                asked = dict.fromkeys([record.key for _, records in chunk for record in records])
                keys = [key for key in asked if not writer.sent(0, key)]
                unread = set(keys)
                if self.bulk:
                    objects = stream(repository.start, keys, limits.MAX_TAKEN)
                else:
                    objects = (repository.objects.read(key, limits.MAX_TAKEN) for key in keys)
                jobs: Iterator[Job] = (
                    (revision, (self._record(revision, record, objects, unread, odd) for record in records))
                    for revision, records in chunk
                )
                yield from _made_behind(writer, jobs) if self.bulk else _made(writer, jobs)
        except (MissingObject, ReadingEnded) as error:
            raise cannot_send(repository, error) from error
        finally:
            writer.abandon()  # Its thread asks `bases`, which the caller closes next.

    def _record(
        self,
        revision: Revision,
        record: Introduced,
        objects: Iterator[GitObject],
        unread: set[Key],
        odd: dict[Key, bytes],
    ) -> NewRecord | HeldRecord:
        """A record for the writer; `odd`: the metas of objects of another type than the trees that hold them say."""
        candidates = [Candidate(key, None) for key in record.candidates if key not in self._excluded]
        if self._partial and record.type == BLOB:
            candidates = []  # Asking for one that was not fetched would end the process that is asked.
        if record.key not in unread:  # Most of a copy's text is never needed.
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


Job = tuple[Revision, Iterator[NewRecord | HeldRecord]]
"""A revision, and the records that it introduced, which are read as they are asked for."""


def _made(writer: SegmentWriter, jobs: Iterable[Job]) -> Iterator[bytes]:
    """Segments in parts, each made before the next one is read."""
    for revision, items in jobs:
        yield from _segment(writer, revision, items)


def _made_behind(writer: SegmentWriter, jobs: Iterable[Job]) -> Iterator[bytes]:
    """The same, made by the writer's thread while the next ones are read, as far as their texts are few."""
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
    """Segments that the writer's thread has made; `wait`: all of them, so that it can be asked for others."""
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
    """The segment of a revision, if a server takes it, in parts."""
    try:
        parts = writer.parts(revision.id, parents_of(revision), items)
    except LimitExceeded as error:
        raise _over(revision, error) from error
    return _checked(revision, parts)


def _over(revision: Revision, error: LimitExceeded) -> CannotSend:
    return CannotSend(f"cannot push {_named(revision)}: {error}")


def _checked(revision: Revision, parts: list[bytes]) -> list[bytes]:
    """The parts of a segment, if a server takes it."""
    size, _ = decode(parts[0], 0)
    if size > limits.MAX_TAKEN:
        raise CannotSend(
            f"cannot push {_named(revision)}: its new content has {size} bytes (compressed), expected no more than "
            f"{limits.MAX_TAKEN} in one commit"
        )
    return parts


def _too_large(revision: Revision, record: Introduced, size: int) -> CannotSend:
    """The refusal to push an object, by the name its user knows it by."""
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
    """The plan of a push by which a server that holds `haves` will hold `tips`."""
    repository.objects.open()  # It gets ready while revisions are listed.
    return GitPlan(repository, revisions(repository, tips, haves))
