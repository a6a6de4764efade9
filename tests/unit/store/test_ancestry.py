from __future__ import annotations

import random

import pytest

from smartserver.records.model import Announced, Parent
from smartserver.store.ancestry import FRONT_LIMIT, Ancestry
from smartserver.store.graph import Graph


def name(ordinal: int) -> bytes:
    return b"r%d" % ordinal


def random_parents(count: int, seed: int) -> list[list[int]]:
    chance = random.Random(seed)
    parents: list[list[int]] = []
    for ordinal in range(count):
        known = min(ordinal, chance.choice((0, 1, 1, 1, 2, 3)))
        parents.append(sorted(chance.sample(range(max(0, ordinal - 30), ordinal), min(known, ordinal, 30))))
    return parents


def ancestors(parents: list[list[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for ordinal, above in enumerate(parents):
        found.append({ordinal}.union(*(found[parent] for parent in above)))
    return found


def graph_of(parents: list[list[int]], parts: int = 1) -> Graph:
    graph = Graph()
    size = max(1, -(-len(parents) // parts))
    for start in range(0, len(parents), size):
        chunk = range(start, min(start + size, len(parents)))
        graph, missing = graph.with_announced(
            Announced(name(ordinal), tuple(Parent(name(parent)) for parent in parents[ordinal])) for ordinal in chunk
        )
        assert missing == []
    return graph


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("stored", [0, 1, 70, 150])
@pytest.mark.parametrize("bits_kept", [0, 1 << 20])
def test_reach_is_the_closure(seed: int, stored: int, bits_kept: int) -> None:
    parents = random_parents(150, seed)
    expected = ancestors(parents)
    ancestry = Ancestry(graph_of(parents[:stored], parts=3), bits_kept=bits_kept)
    assert ancestry.stored == stored
    for ordinal in range(stored, 150):
        assert ancestry.add(parents[ordinal]) == ordinal
    assert len(ancestry) == 150
    order = list(range(150))
    random.Random(seed).shuffle(order)
    for ordinal in range(150):
        reach = ancestry.reach(ordinal)
        assert {each for each in order if reach.has(each)} == expected[ordinal]
        assert ancestry.is_ancestor(0, ordinal) == (0 in expected[ordinal])


def test_a_frontier_is_reduced_to_its_heads() -> None:
    line = [[ordinal - 1] if ordinal else [] for ordinal in range(100)]
    ancestry = Ancestry(graph_of(line))
    last = ancestry.add([0])
    for below in range(1, 3 * FRONT_LIMIT):
        last = ancestry.add([last, below])
    assert ancestry.reach(last).has(3 * FRONT_LIMIT - 1)
    assert not ancestry.reach(last).has(3 * FRONT_LIMIT)
    assert len(ancestry._fronts[-1].ordinals) <= FRONT_LIMIT + 1


def test_unrelated_heads_stay_in_a_frontier() -> None:
    apart: list[list[int]] = [[] for _ in range(60)]
    ancestry = Ancestry(graph_of(apart))
    last = ancestry.add([0])
    for below in range(1, 60):
        last = ancestry.add([last, below])
    assert all(ancestry.reach(last).has(below) for below in range(60))


def test_a_stored_revision_reaches_its_stored_ancestors_only() -> None:
    ancestry = Ancestry(graph_of([[], [0], []]))
    ancestry.add([1])
    reach = ancestry.reach(1)
    assert [reach.has(ordinal) for ordinal in range(4)] == [True, True, False, False]
    assert ancestry.is_ancestor(3, 3)
    assert not ancestry.is_ancestor(3, 1)


def test_bits_stay_within_their_bound() -> None:
    ancestry = Ancestry(Graph(), bits_kept=5000)
    last = ancestry.add([])
    for _ in range(1000):
        last = ancestry.add([last])
    assert len(ancestry._bits) < 100
    assert ancestry.reach(last).has(0)
    assert ancestry.reach(500).has(499)
    assert not ancestry.reach(500).has(501)
