"""Makes the segments of a push: each planned revision with its new records.

Texts are read in the order in which they are sent. So only those of a few revisions and the caches of bases are in
memory, and some 60 bytes for each object: its key is remembered, as its text is sent only once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Self

from smartserver.records import limits
from smartserver.records.bases import Candidate, HeldRecord, NewRecord, SegmentWriter
from smartserver.records.keys import ABSENT, KeyTable
from smartserver.records.model import GraphNode, Key, RevisionId
from smartserver.records.native import native
from smartserver.vcs.base import CannotSend
from smartserver.vcs.collector import rare_collections
from smartserver.vcs.git.objects import (
    BLOB,
    METAS,
    TYPE_NAMES,
    MissingObject,
    ObjectReader,
    Reading,
    ReadingEnded,
    TooLarge,
    reading,
)
from smartserver.vcs.git.plan import (
    Finder,
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
"""The most revisions that are read through the process of git that runs already, and of which each record has its
direct predecessor as base."""

_CACHE = 32 << 20
"""The most bytes of texts that are cached as possible bases; evicted texts are read again. Twice as much saves no
time."""

_READ_CACHE = 64 << 20
"""The most bytes of texts that are cached to read others, which lie in git's packs as deltas. Half as much takes a
third more time."""


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
        objects = self._repository.objects
        if not self.bulk:
            yield from self._segments_on(objects.read, objects.read)
            return
        # The writer's thread needs a reader of its own: it reads while this thread does.
        with contextlib.closing(ObjectReader(self._repository.start)) as bases:
            if native("ObjectStore") is None:
                yield from self._segments_on(objects.read, bases.read)
                return
            store = native("ObjectStore")(self._repository.object_dir, self._repository.id_length, _READ_CACHE)
            # What a partial clone lacks is no error in Python.
            finder = None if self._partial else native("IntroducedObjects")(store, list(self._excluded))
            yield from self._segments_on(reading(store, objects), reading(store, bases), finder)

    def _segments_on(self, read: Reading, read_base: Reading, finder: Finder | None = None) -> Iterator[bytes]:
        """Yield the segments. `read_base`: reads the bases that were dropped from the cache or are not sent."""
        repository = self._repository

        def text(kind: int, key: Key) -> bytes:
            return read_base(key).text

        writer = SegmentWriter(repository.kinds, bulk=self.bulk, texts=text, cache=_CACHE)
        try:
            jobs = self._jobs(read, finder)
            if self.bulk:
                yield from segments_in_thread(writer, jobs)
            else:
                yield from chain.from_iterable(segment(writer, job) for job in jobs)
        except (MissingObject, ReadingEnded) as error:
            raise cannot_send(repository, error) from error
        finally:
            writer.abandon()  # Its thread asks `bases`, which the caller closes next.

    def _jobs(self, read: Reading, finder: Finder | None) -> Iterator[Job]:
        """Yield each revision with its records."""
        found = introduced(self._repository, self._sending, read, finder)
        sent = _Sent() if finder is None else finder
        for revision, (held, listed) in zip(self._sending, found, strict=True):
            records = (self._record(revision, each, read, sent) for each in listed)
            yield Job(_named(revision), revision.id, parents_of(revision), records, held)

    def _record(
        self, revision: Revision, record: Introduced, read: Reading, sent: _Sent | Finder
    ) -> NewRecord | HeldRecord:
        """Return a record for the writer."""
        candidates = [Candidate(key, None) for key in record.candidates if key not in self._excluded]
        if self._partial and record.type == BLOB:
            candidates = []  # If asked for a blob that was not fetched, git would end.
        key, path = record.key, record.path
        kind = sent.sent(key)
        if kind is not None:  # The texts of most copies are never needed.
            return HeldRecord(0, key, METAS[kind], candidates, path)
        try:
            found = read(key, limits.MAX_TAKEN)
        except TooLarge as error:
            raise _too_large(revision, record, error.size) from error
        sent.send(key, found.type)
        return NewRecord(0, key, METAS[found.type], found.text, candidates, path, found.parts)


class _Sent:
    """The objects sent so far, and their types; used without a `Finder`."""

    def __init__(self) -> None:
        self._keys = KeyTable()
        self._types = bytearray()

    def sent(self, key: Key, /) -> int | None:
        number = self._keys.find(key)
        return None if number == ABSENT else self._types[number]

    def send(self, key: Key, kind: int, /) -> None:
        self._keys.number(key)
        self._types.append(kind)


def _too_large(revision: Revision, record: Introduced, size: int) -> CannotSend:
    """Return the error that refuses a large object, with the path by which the user knows it."""
    what = f"{TYPE_NAMES[record.type].decode('ascii')} {record.key.hex()}"
    if record.path:
        what = f"{record.path.decode('utf-8', 'backslashreplace')!r} ({what})"
    where = "" if record.key == revision.id else f" of {_named(revision)}"
    return CannotSend(f"cannot push {what}{where}: it has {size} bytes, expected no more than {limits.MAX_TAKEN}")


def _named(revision: Revision) -> str:
    return f"{TYPE_NAMES[revision.type].decode('ascii')} {revision.id.hex()}"


def plan(repository: GitRepository, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> GitPlan:
    """Return the plan of a push after which a server that has `haves` also has `tips`."""
    repository.objects.open()  # It gets ready while revisions are listed.
    return GitPlan(repository, revisions(repository, tips, haves))
