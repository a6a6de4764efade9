"""client.body: what a push sends first, its pieces, and when it is a bulk stream."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence

import pytest
from remotes import segment

from smartserver.client.body import PIECE, reported, sending
from smartserver.client.request import BodySource
from smartserver.records.bulk import BulkDecoder, read_bulk
from smartserver.records.model import GraphNode, Key, Plan
from smartserver.records.segment import encode_graph
from smartserver.wire.limits import GRAPH_FIRST_THRESHOLD
from smartserver.wire.messages import RequestFlag

GRAPH = [GraphNode(b"%020d" % number, ()) for number in range(3)]
NOISE = random.Random(0)

LITTLE = 80 * 1024
"""Bytes: 64 KiB and what is read at once; zstd by itself holds back 128 KiB."""


class Made:
    """A plan of given segments, which counts how often they were made."""

    def __init__(self, segments: Sequence[bytes]) -> None:
        self.graph: Sequence[GraphNode] = GRAPH
        self.made = 0
        self._segments = segments

    def segments(self) -> Iterable[bytes]:
        """One after the other."""
        self.made += 1
        yield from self._segments

    def without_bases(self, keys: Collection[Key]) -> Plan:
        """Nothing here has a base."""
        raise AssertionError(keys)


def said(body: BodySource) -> bytes:
    return b"".join(piece for piece, _ in body())


SMALL = [segment(content) for content in (b"one and one and one and one " * 20, b"two", b"three")]
LARGE = [
    segment(content)
    for content in (NOISE.randbytes(GRAPH_FIRST_THRESHOLD - 4), b"over" * 100, NOISE.randbytes(3 * PIECE + 5), b"end")
]


def test_the_graph_comes_before_a_large_one_and_no_piece_is_longer_than_a_look_for_a_refusal_allows() -> None:
    plan = Made(LARGE)
    flags, body = sending(plan, bulk=False)
    assert flags == RequestFlag.GRAPH_FIRST
    pieces = list(body())
    assert b"".join(piece for piece, _ in pieces) == encode_graph(GRAPH) + b"".join(LARGE)
    assert pieces[0] == (encode_graph(GRAPH), 0)
    assert max(len(piece) for piece, _ in pieces) <= PIECE
    assert sum(ended for _, ended in pieces) == len(LARGE)
    assert plan.made == 1
    assert list(body()) == pieces


@pytest.mark.parametrize("bulk", [False, True])
def test_a_large_one_need_not_announce_its_graph(bulk: bool) -> None:
    flags, body = sending(Made(LARGE), bulk=bulk, announced=False)
    assert flags == (RequestFlag.BULK if bulk else RequestFlag.NONE)
    segments = b"".join(read_bulk([said(body)])) if bulk else said(body)
    assert segments == b"".join(LARGE)
    assert sum(ended for _, ended in body()) == len(LARGE)


def test_a_segment_may_come_in_parts() -> None:
    """It ends once, in the piece that has its last byte."""
    whole = segment(NOISE.randbytes(5 * PIECE))
    parts = [whole[:10], whole[10 : 3 * PIECE], whole[3 * PIECE :]]
    _, body = sending(Made([*parts, *SMALL]), bulk=False, announced=False)
    pieces = list(body())
    assert b"".join(piece for piece, _ in pieces) == whole + b"".join(SMALL)
    assert [ended for _, ended in pieces if ended] == [1, len(SMALL)]
    _, body = sending(Made(parts), bulk=False, announced=False)
    assert [ended for _, ended in body()][-2:] == [0, 1]


def test_a_large_bulk_stream_says_its_graph_whole_before_anything_else() -> None:
    flags, body = sending(Made(LARGE), bulk=True)
    assert flags == RequestFlag.BULK | RequestFlag.GRAPH_FIRST
    pieces = list(body())
    assert max(len(piece) for piece, _ in pieces) <= PIECE
    assert sum(ended for _, ended in pieces) == len(LARGE)
    stream = read_bulk([pieces[0][0]])
    assert next(stream) == encode_graph(GRAPH)
    assert b"".join(read_bulk(piece for piece, _ in pieces)) == encode_graph(GRAPH) + b"".join(LARGE)
    assert list(body()) == pieces


def test_a_bulk_stream_holds_little_back() -> None:
    """The bytes made before are at the server while the next segment is made."""
    segments = [NOISE.randbytes(PIECE // 8) for _ in range(80)]
    made = 0

    def counted() -> Iterator[bytes]:
        nonlocal made
        for each in segments:
            yield each
            made += len(each)

    plan = Made(segments)
    plan.segments = counted  # type: ignore[method-assign]
    _, body = sending(plan, bulk=True)
    decoder = BulkDecoder()
    came = -len(encode_graph(GRAPH))
    for piece, _ in body():
        came += sum(map(len, decoder.feed(piece)))
        assert made - came <= LITTLE
    assert came == sum(map(len, segments))


@pytest.mark.parametrize("bulk", [False, True])
def test_bytes_are_reported_within_a_large_segment(bulk: bool) -> None:
    """They are reported as they are sent, however few the revisions are; all of them at the end alone."""
    plan = Made([segment(NOISE.randbytes(GRAPH_FIRST_THRESHOLD + 8 * PIECE)), *SMALL[1:]])
    told: list[tuple[int, int, int]] = []
    _, body = sending(plan, bulk=bulk)
    body = reported(body, 3, lambda *sent: told.append(sent))
    for _ in range(2):  # It may be sent again.
        told.clear()
        sizes = [0]
        for piece, _ in body():
            assert len(told) == len(sizes) - 1
            sizes.append(sizes[-1] + len(piece))
        assert len(told) > 8
        assert [size for size, _, _ in told[:-1]] == sizes[1 : len(told)]
        assert {done for _, done, _ in told[:8]} == {0}
        assert told[-1] == (sizes[-1], 3, 3)
        assert [done for _, done, _ in told].count(3) == 1
