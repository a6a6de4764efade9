from __future__ import annotations

import random
import tracemalloc

import pytest

from smartserver.errors import LimitExceeded
from smartserver.records import limits, varint
from smartserver.records.announced import CHARGED, AnnouncedGraph
from smartserver.records.model import GraphNode, Parent
from smartserver.records.segment import encode_graph


def line(count: int) -> list[GraphNode]:
    ids = [b"%020d" % number for number in range(count)]
    return [GraphNode(each, (Parent(ids[at - 1]),) if at else ()) for at, each in enumerate(ids)]


def block(count: int, body: bytes) -> bytes:
    body = varint.encode(count) + body
    return varint.encode(len(body)) + body


def test_every_revision_is_found_by_place_and_by_id() -> None:
    chance = random.Random(5)
    ids = [chance.randbytes(chance.randrange(1, 200)) for _ in range(3000)]
    ids = list(dict.fromkeys(ids))
    revisions: list[GraphNode] = []
    for at, each in enumerate(ids):
        parents = [Parent(ids[chance.randrange(at)]) for _ in range(min(at, 2))]
        revisions.append(GraphNode(each, (*parents, Parent(b"outside%d" % (at % 7)), Parent(b"ghost", True))))
    graph = AnnouncedGraph(encode_graph(revisions))
    assert len(graph) == len(ids)
    assert list(graph) == revisions
    assert [graph[-1], *graph[1:3]] == [revisions[-1], *revisions[1:3]]
    assert [graph.find(each) for each in ids] == list(range(len(ids)))
    assert [graph.revision(place) for place in range(len(ids))] == ids
    assert [graph.find(each) for each in (b"outside1", b"ghost", b"nowhere")] == [None] * 3
    for place in (len(ids), -len(ids) - 1):
        with pytest.raises(IndexError):
            graph[place]


def test_the_count_is_refused_before_anything_is_read() -> None:
    with pytest.raises(
        LimitExceeded, match="too many revisions of an announced graph: 3000001, at most 3000000 are allowed"
    ):
        AnnouncedGraph(block(limits.MAX_ANNOUNCED + 1, b""))


def test_parents_are_counted_over_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ANNOUNCED_PARENTS", 10)
    assert len(AnnouncedGraph(encode_graph(line(11)))) == 11
    with pytest.raises(LimitExceeded, match="too many parents of an announced graph: 11, at most 10 are allowed"):
        AnnouncedGraph(block(12, encode_graph(line(12))[4:]))
    with pytest.raises(LimitExceeded, match="parents of an announced graph"):
        encode_graph(line(12))


def test_reading_is_charged_as_it_goes_on() -> None:
    steps: list[int] = []
    AnnouncedGraph(encode_graph(line(20_000)), steps.append)
    assert max(steps) <= CHARGED + 2
    assert 40_000 - CHARGED <= sum(steps) <= 40_000


@pytest.mark.long
@pytest.mark.parametrize("git", [False, True])
def test_memory_is_a_few_times_the_bytes(git: bool) -> None:
    """Memory is 1.5 times the bytes of git's ids besides the graph itself, and 8 times of the shortest ids: those are
    bounded by their number, not by their bytes."""
    count = 30_000
    if git:
        raw = encode_graph(line(count))
    else:
        body = b"".join(b"\3" + at.to_bytes(3, "big") + (b"\1\1" if at else b"\0") for at in range(count))
        raw = block(count, body)
    tracemalloc.start()
    try:
        graph = AnnouncedGraph(raw)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(graph) == count
    assert most < 48 * count
    assert most < (3 if git else 8) * len(raw)
