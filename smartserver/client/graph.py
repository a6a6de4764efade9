"""The reader of a graph: a bulk stream of segments without records."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from smartserver.records.bulk import read_bulk
from smartserver.records.model import GraphNode, Kind
from smartserver.records.segment import SegmentStream, decode_segment
from smartserver.records.varint import Malformed
from smartserver.wire.errors import RemoteProtocolError


def read_graph(body: Iterable[bytes], kinds: Sequence[Kind]) -> Iterator[GraphNode]:
    """The revisions of a body with their parents, as they come."""
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
                if segment.entries:
                    raise ValueError(f"{len(segment.entries)} records")
                yield GraphNode(segment.revision, segment.parents)
        stream.finish()
    except (Malformed, ValueError) as error:
        raise RemoteProtocolError(f"expected ids and parents, got something else: {error}") from error
