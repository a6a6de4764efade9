from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from pack_samples import stored

from smartserver.errors import Cancelled
from smartserver.records.model import GraphNode, Parent
from smartserver.store.allowance import CHECK, Allowance
from smartserver.store.graph import Graph
from smartserver.store.snapshot import Snapshot


def announced(parents: Mapping[bytes, Sequence[bytes]]) -> list[GraphNode]:
    """Revisions with their parents; one in upper case is absent."""
    return [
        GraphNode(revision, tuple(Parent(parent.lower(), parent != parent.lower()) for parent in named))
        for revision, named in parents.items()
    ]


def graph_of(*steps: Mapping[bytes, Sequence[bytes]]) -> Graph:
    """One part a step."""
    graph = Graph()
    for step in steps:
        graph, missing = graph.with_announced(announced(step))
        assert not missing
    return graph


#   a - b - c - f - g      e is absent to h's writer
#    \- d - e -/
GRAPH = graph_of(
    {b"a": (), b"b": (b"a",), b"c": (b"b",), b"d": (b"a",)}, {b"e": (b"d",), b"f": (b"c", b"e")}, {b"g": (b"f",)}
)


def named(graph: Graph, ordinals: Sequence[int]) -> bytes:
    return b"".join(graph.revision(ordinal) for ordinal in ordinals)


def ordinals(graph: Graph, names: bytes) -> list[int]:
    found = [graph.ordinal(bytes((name,))) for name in names]
    assert None not in found
    return [ordinal for ordinal in found if ordinal is not None]


def test_ordinals_go_through_all_parts() -> None:
    assert GRAPH.count == 7
    assert named(GRAPH, range(7)) == b"abcdefg"
    assert ordinals(GRAPH, b"abcdefg") == list(range(7))
    assert GRAPH.ordinal(b"z") is None
    assert [GRAPH.part_at(ordinal) for ordinal in range(7)] == [0, 0, 0, 0, 1, 1, 2]
    for wrong in (-1, 7):
        with pytest.raises(IndexError, match=f"no revision has the ordinal {wrong}, there are 7"):
            GRAPH.parents(wrong)


def test_an_absent_edge_is_cut_though_the_parent_is_here() -> None:
    graph = graph_of({b"a": (), b"b": (b"a",)}, {b"c": (b"B", b"a")})
    assert named(graph, graph.parents(2)) == b"a"
    assert not graph.is_ancestor(1, 2)
    assert named(graph, graph.missing([2], [])) == b"ac"


def test_a_ghost_that_comes_after_its_child_is_another_revision() -> None:
    graph = graph_of({b"b": (b"A",)}, {b"a": (), b"c": (b"a", b"b")})
    assert named(graph, graph.missing([0], [])) == b"b"
    assert named(graph, graph.missing([2], [0])) == b"ac"


def test_announcing_nothing_new_gives_the_same_graph() -> None:
    graph, lacking = GRAPH.with_announced(announced({b"a": (), b"g": (b"f",)}))
    assert graph is GRAPH
    assert not lacking


def test_parents_neither_here_nor_before_are_named_once() -> None:
    _, lacking = GRAPH.with_announced(announced({b"h": (b"x", b"i"), b"i": (b"x", b"y", b"Z")}))
    assert lacking == [b"x", b"i", b"y"]


def test_a_pack_whose_parents_are_nowhere() -> None:
    made = stored([3, 2])
    index = Snapshot.open(made.transport, made.state()).packs[1].index
    graph, lacking = Graph().with_index(index)
    assert lacking == [b"revision-0002"]
    assert graph.count == 2


def test_a_walk_charges_its_steps_and_ends_where_that_raises() -> None:
    count = 30_000
    graph, _ = Graph().with_announced(
        [GraphNode(b"%d" % n, (Parent(b"%d" % (n - 1)),) if n else ()) for n in range(count)]
    )
    steps: list[int] = []
    assert len(graph.missing([count - 1], [], charge=steps.append)) == count
    assert sum(steps) == 2 * count - 1
    assert max(steps) <= CHECK + 2
    steps.clear()
    assert graph.is_ancestor(count - 1000, count - 1, steps.append)
    assert sum(steps) == 2 * 1000
    steps.clear()
    newest = list(itertools.islice(graph.newest_first([count - 1], [], charge=steps.append), 5000))
    assert newest == list(range(count - 1, count - 5001, -1))
    assert CHECK < sum(steps) <= 2 * 5000
    allowance = Allowance()
    allowance.cancelled = True
    with pytest.raises(Cancelled):
        graph.missing([count - 1], [], charge=allowance.charge)
