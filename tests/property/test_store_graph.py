"""Ancestry over parts with any cuts agrees with sets of ancestors."""

from __future__ import annotations

from functools import partial
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from smartserver.records.announced import AnnouncedGraph
from smartserver.records.model import GraphNode, Parent
from smartserver.records.segment import encode_graph
from smartserver.store import ancestry as ancestry_module
from smartserver.store import graph as graph_module
from smartserver.store.ancestry import MERGES, QUESTION, Ancestry
from smartserver.store.graph import Graph


@st.composite
def histories(draw: st.DrawFn) -> list[list[int]]:
    """The parents of each revision, most of them near."""
    parents: list[list[int]] = []
    for number in range(draw(st.integers(1, 40))):
        near = st.integers(max(0, number - 4), number - 1) if number else st.nothing()
        far = st.integers(0, number - 1) if number else st.nothing()
        parents.append(draw(st.lists(near | far, max_size=3, unique=True)) if number else [])
    return parents


def ancestors_of(parents: list[list[int]]) -> list[set[int]]:
    """Return, for each revision, itself and its ancestors."""
    found: list[set[int]] = []
    for number, named in enumerate(parents):
        found.append({number}.union(*(found[parent] for parent in named)))
    return found


def graph_of(parents: list[list[int]], cuts: set[int], *, read: bool = False) -> Graph:
    """Build a graph whose parts begin at `cuts`. `read`: each part comes as the block of an announced graph."""
    graph = Graph()
    step: list[GraphNode] = []
    for number, named in enumerate([*parents, []]):
        if number in cuts or number == len(parents):
            graph, missing = graph.with_announced(AnnouncedGraph(encode_graph(step)) if read else step)
            assert not missing
            step = []
        step.append(GraphNode(b"%d" % number, tuple(Parent(b"%d" % parent) for parent in named)))
    return graph


SOME = st.lists(st.integers(0, 1000), max_size=4)


@given(
    histories(), st.integers(0, 40), st.booleans(), st.integers(0, 60), st.lists(st.integers(0, 1 << 20), max_size=20)
)
def test_the_ancestry_of_a_stream(
    parents: list[list[int]], stored: int, read: bool, kept: int, order: list[int]
) -> None:
    """Earlier questions and the number of kept marks do not matter; a question takes at most one step for each edge."""
    stored = min(stored, len(parents))
    expected = ancestors_of(parents)
    steps: list[int] = []
    with mock.patch.multiple(ancestry_module, CHECK=0, MARKS_KEPT=kept):
        ancestry = Ancestry(graph_of(parents[:stored], {7, 20}, read=read), steps.append)
        for number in range(stored, len(parents)):
            assert ancestry.add(parents[number]) == number
        for asked in order:
            ancestor, number = asked % len(parents), asked // 64 % len(parents)
            assert ancestry.reaches_any(number, [ancestor]) is (ancestor in expected[number])
        for number in range(len(parents)):
            reach = partial(ancestry.reaches_any, number)
            assert {each for each in range(len(parents)) if reach([each])} == expected[number]
    edges = len(parents) + sum(map(len, parents))
    questions = len(order) + len(parents) ** 2
    assert sum(steps) <= edges + questions * (QUESTION + 16 * (1 + MERGES) + edges)


@given(
    histories(), st.sets(st.integers(1, 39), max_size=5), SOME, SOME, SOME, st.sampled_from([1, 2, 14]), st.booleans()
)
def test_missing_heads_and_ancestors(
    parents: list[list[int]],
    cuts: set[int],
    wants: list[int],
    haves: list[int],
    cut: list[int],
    block: int,
    read: bool,
) -> None:
    count = len(parents)
    wants, haves, cut = ([number % count for number in some] for some in (wants, haves, cut))
    ancestors = ancestors_of(parents)
    had: set[int] = set()
    todo = [have for have in haves if have not in cut]
    while todo:
        number = todo.pop()
        if number not in had:
            had.add(number)
            todo += (parent for parent in parents[number] if parent not in cut)
    wanted: set[int] = set().union(*(ancestors[want] for want in wants))
    with mock.patch.multiple(graph_module, BLOCK_BITS=block, BLOCK=1 << block):
        graph = graph_of(parents, cuts, read=read)
        assert graph.count == count
        assert graph.missing(wants, haves, cut) == sorted(wanted - had)
        for number in range(count):
            assert sorted(graph.parents(number)) == sorted(parents[number])
            for want in wants:
                assert graph.is_ancestor(number, want) is (number in ancestors[want])
        given_ones = sorted({*wants, *haves})
        heads = [one for one in given_ones if not any(one in ancestors[other] for other in given_ones if other != one)]
        assert graph.heads(given_ones) == heads
