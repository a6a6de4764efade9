"""Ancestry over parts of any cut agrees with sets of ancestors."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from smartserver.records.model import Announced, Parent
from smartserver.store import graph as graph_module
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
    """Of each revision: itself and what it descends from."""
    found: list[set[int]] = []
    for number, named in enumerate(parents):
        found.append({number}.union(*(found[parent] for parent in named)))
    return found


def graph_of(parents: list[list[int]], cuts: set[int]) -> Graph:
    """A new part begins at each of `cuts`."""
    graph = Graph()
    step: list[Announced] = []
    for number, named in enumerate(parents):
        if number in cuts:
            graph, _ = graph.with_announced(step)
            step = []
        step.append(Announced(b"%d" % number, tuple(Parent(b"%d" % parent) for parent in named)))
    graph, missing = graph.with_announced(step)
    assert not missing
    return graph


SOME = st.lists(st.integers(0, 1000), max_size=4)


@given(histories(), st.sets(st.integers(1, 39), max_size=5), SOME, SOME, SOME, st.sampled_from([1, 2, 14]))
def test_missing_heads_and_ancestors(
    parents: list[list[int]], cuts: set[int], wants: list[int], haves: list[int], cut: list[int], block: int
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
        graph = graph_of(parents, cuts)
        assert graph.count == count
        assert graph.missing(wants, haves, cut) == sorted(wanted - had)
        for number in range(count):
            assert sorted(graph.parents(number)) == sorted(parents[number])
            for want in wants:
                assert graph.is_ancestor(number, want) is (number in ancestors[want])
        given_ones = sorted({*wants, *haves})
        heads = [one for one in given_ones if not any(one in ancestors[other] for other in given_ones if other != one)]
        assert graph.heads(given_ones) == heads
