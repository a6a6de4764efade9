"""Builds the segments of a push, in the caller's thread or in the writer's thread while the next records are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from smartserver.errors import LimitExceeded
from smartserver.records import limits
from smartserver.records.bases import HeldRecord, NewRecord, SegmentWriter
from smartserver.records.model import Parent, RevisionId
from smartserver.records.varint import decode
from smartserver.vcs.base import CannotSend

HELD: Final = 4 << 20
"""The writer's thread makes the segment of a revision whose texts have fewer bytes than this, because all of them can
be in memory. The caller's thread makes any other segment."""


class Job(NamedTuple):
    """A revision to send."""

    named: str
    """The name of the revision in errors."""
    revision: RevisionId
    parents: Sequence[Parent]
    records: Iterable[NewRecord | HeldRecord] = ()
    """The records that the revision introduced. They may be read lazily, one by one."""
    held: Any = None
    """In place of `records`: the records as a native part has read them, for the native `SegmentWriter.put`."""


def segment(writer: SegmentWriter, job: Job) -> list[bytes]:
    """Return the segment of a revision as one or more pieces: a large text is not joined with the rest.

    Raises:
        CannotSend: the segment exceeds a limit of the server.
    """
    try:
        parts = writer.parts(job.revision, job.parents, job.records)
    except LimitExceeded as error:
        raise _refusal(job, error) from error
    return _check_size(job, parts)


def segments_in_thread(writer: SegmentWriter, jobs: Iterable[Job]) -> Iterator[bytes]:
    """Yield the segments of `jobs` in order, each as one or more pieces. The writer's thread makes small segments while
    the next revisions are read. The caller must call `writer.abandon` at the end.

    Raises:
        CannotSend: a segment exceeds a limit of the server.
    """
    waiting: deque[Job] = deque()
    for job in jobs:
        if job.held is not None:
            waiting.append(job)
            writer.put(job.revision, job.parents, job.held)
            yield from _take(writer, waiting, wait=False)
            continue
        held: list[NewRecord | HeldRecord] = []
        size = 0
        records = iter(job.records)
        for record in records:
            held.append(record)
            if isinstance(record, NewRecord):
                size += len(record.text) if record.parts is None else HELD
            if size >= HELD:
                yield from _take(writer, waiting, wait=True)
                yield from segment(writer, job._replace(records=chain(held, records)))
                break
        else:
            waiting.append(job)
            writer.put(job.revision, job.parents, held)
            yield from _take(writer, waiting, wait=False)
    yield from _take(writer, waiting, wait=True)


def _take(writer: SegmentWriter, waiting: deque[Job], *, wait: bool) -> Iterator[bytes]:
    """Yield the segments that the writer's thread has made. With `wait`, wait until it has made all of them."""
    while True:
        try:
            made = writer.take(wait)
        except LimitExceeded as error:
            raise _refusal(waiting[0], error) from error
        for parts in made:
            yield from _check_size(waiting.popleft(), parts)
        if not (wait and waiting):
            break


def _check_size(job: Job, parts: list[bytes]) -> list[bytes]:
    size, _ = decode(parts[0], 0)
    if size > limits.MAX_TAKEN:
        raise _refusal(
            job,
            f"its new content has {size} bytes (compressed), expected no more than {limits.MAX_TAKEN} in one commit",
        )
    return parts


def _refusal(job: Job, why: object) -> CannotSend:
    return CannotSend(f"cannot push {job.named}: {why}")
