"""What a pull of less than whole revisions brings: the records of a bulk stream, each checked against its key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from smartserver.records.bulk import read_bulk
from smartserver.records.check import verify_record
from smartserver.records.model import Kind, Parent, Record, RevisionId
from smartserver.records.segment import STORED, SegmentStream, decode_segment, frames
from smartserver.records.varint import Malformed
from smartserver.wire.errors import RemoteProtocolError


class Part(NamedTuple):
    """Some records, under the name of a revision that has them; not all of its, and not only those it introduced."""

    revision: RevisionId
    parents: tuple[Parent, ...]
    records: tuple[Record, ...]


def read_content(body: Iterable[bytes], kinds: Sequence[Kind]) -> Iterator[Part]:
    """The parts of a body as they come.

    Raises:
        RemoteProtocolError: it is no such body, or a record is not what its key or check says.
        CodedError, MediumError: as the body.
    """
    chunks = iter(body)
    first = next(chunks, None)
    if first is None:
        return  # There was nothing to send.
    stream = SegmentStream(graph_first=False)
    try:
        for text in read_bulk(itertools.chain((first,), chunks)):
            stream.feed(text)
            for whole in stream.segments():
                segment = decode_segment(whole, 0, kinds)
                records = []
                for entry, frame in zip(segment.entries, frames(segment, whole), strict=True):
                    if entry.base or entry.encoding != STORED:
                        raise ValueError("a record in a bulk stream is not whole")
                    text = bytes(frame)
                    verify_record(kinds[entry.kind], entry.key, entry.meta, text, entry.check)
                    records.append(Record(entry.kind, entry.key, entry.meta, text))
                yield Part(segment.revision, segment.parents, tuple(records))
        stream.finish()
    except (Malformed, ValueError) as wrong:
        raise RemoteProtocolError(f"expected records, got something else: {wrong}") from wrong
