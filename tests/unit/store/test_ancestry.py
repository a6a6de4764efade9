from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest

from smartserver.errors import Cancelled, LimitExceeded
from smartserver.records.model import GraphNode, Parent
from smartserver.store import ancestry as ancestry_module
from smartserver.store.allowance import STEPS, Allowance
from smartserver.store.ancestry import Ancestry
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
            [GraphNode(name(ordinal), tuple(Parent(name(parent)) for parent in parents[ordinal])) for ordinal in chunk]
        )
        assert missing == []
    return graph


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("stored", [0, 1, 70, 150])
@pytest.mark.parametrize("marks_kept", [0, 1 << 20])
def test_reach_is_the_closure(seed: int, stored: int, marks_kept: int) -> None:
    parents = random_parents(150, seed)
    expected = ancestors(parents)
    ancestry = Ancestry(graph_of(parents[:stored], parts=3), marks_kept=marks_kept)
    assert ancestry.stored == stored
    for ordinal in range(stored, 150):
        assert ancestry.add(parents[ordinal]) == ordinal
    assert len(ancestry) == 150
    order = list(range(150))
    random.Random(seed).shuffle(order)
    for ordinal in range(150):
        reach = partial(ancestry.reaches_any, ordinal)
        assert {each for each in order if reach([each])} == expected[ordinal]
        some = order[ordinal : ordinal + 3]
        assert reach(some) == bool(expected[ordinal].intersection(some))


def test_revisions_on_the_same_stored_ones_share_their_marks() -> None:
    line = [[ordinal - 1] if ordinal else [] for ordinal in range(100)]
    steps: list[int] = []
    ancestry = Ancestry(graph_of(line), steps.append)
    last = ancestry.add([99])
    for _ in range(50_000):
        last = ancestry.add([last, last - 1] if last > 200 else [last])
        assert ancestry.reaches_any(last, [1])
    assert sum(steps) < 20 * 50_000
    assert len(set(map(id, ancestry._fronts))) == 1


def test_unrelated_heads_stay_in_a_frontier() -> None:
    apart: list[list[int]] = [[] for _ in range(60)]
    ancestry = Ancestry(graph_of(apart))
    last = ancestry.add([0])
    for below in range(1, 60):
        last = ancestry.add([last, below])
    assert all(ancestry.reaches_any(last, [below]) for below in range(60))


def test_a_stored_revision_reaches_its_stored_ancestors_only() -> None:
    ancestry = Ancestry(graph_of([[], [0], []]))
    ancestry.add([1])
    reach = partial(ancestry.reaches_any, 1)
    assert [reach([ordinal]) for ordinal in range(4)] == [True, True, False, False]
    assert ancestry.reaches_any(3, [3])


def test_nothing_is_marked_where_one_of_several_is_near() -> None:
    """The newest copies of a record lie elsewhere, an older one on the line of the second parent of the merge below."""
    ancestry = Ancestry(Graph())
    base = ancestry.add([])
    side = ancestry.add([base])
    merge = ancestry.add([ancestry.add([base]), side])
    tip = ancestry.add([ancestry.add([merge]), ancestry.add([merge])])
    apart = [ancestry.add([base]) for _ in range(3)]
    tip = ancestry.add([ancestry.add([tip]), ancestry.add([tip])])
    assert ancestry.reaches_any(tip, [*apart, side])
    assert not ancestry._marks
    assert not ancestry.reaches_any(tip, apart)
    assert ancestry._marks


def test_a_record_that_came_many_times_costs_no_more_to_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy was brought by a branch of its own, merged into one that was merged itself."""
    costs = []
    for count in (100, 1000):
        steps: list[int] = []
        ancestry = Ancestry(Graph(), steps.append)
        main = ancestry.add([])
        copies = []
        for _ in range(count):
            copies.append(ancestry.add([main]))
            main = ancestry.add([main, ancestry.add([main, copies[-1]])])
        monkeypatch.setattr(ancestry_module, "CHECK", 0)
        assert ancestry.reaches_any(main, reversed(copies))
        before = sum(steps)
        assert ancestry.reaches_any(main, reversed(copies))
        costs.append(sum(steps) - before)
    assert costs[1] < 2 * costs[0] < 2000


def test_marks_stay_within_their_bound() -> None:
    ancestry = Ancestry(Graph(), marks_kept=5000)
    lines = [ancestry.add([]), ancestry.add([])]
    for number in range(1000):
        lines[number % 2] = ancestry.add([lines[number % 2], *([lines[1]] if number % 10 == 0 else [])])
    for ordinal in range(500, 1000):
        ancestry.reaches_any(ordinal, [0])
    assert ancestry._marks.size == sum(map(len, ancestry._marks._values.values())) <= 5000
    assert ancestry.reaches_any(1000, [1])
    assert not ancestry.reaches_any(1001, [0])


# -- what a stream costs, in steps, whatever its graph is


def one_far_parent(count: int) -> list[list[int]]:
    """Each on the one 10,000 before it: no table of the latest ancestors holds what the next one needs."""
    return [[ordinal - 10_000] if ordinal >= 10_000 else [] for ordinal in range(count)]


def far_merges(count: int) -> list[list[int]]:
    return [[ordinal - 1, ordinal // 2] if ordinal > 1 else [] for ordinal in range(count)]


def many_lines(count: int) -> list[list[int]]:
    """A merge of a thousand lines, which each go on."""
    return [
        [ordinal - 1000, *([ordinal - 999] if ordinal % 7 == 0 else [])] if ordinal >= 1000 else []
        for ordinal in range(count)
    ]


def wide_merges(count: int) -> list[list[int]]:
    return [list(range(ordinal)) if ordinal % 500 == 0 else [] for ordinal in range(count // 4)]


FAMILIES = [one_far_parent, far_merges, many_lines, wide_merges]


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stored", [0, 5000])
def test_a_stream_costs_a_few_steps_for_each_edge(family: Callable[[int], list[list[int]]], stored: int) -> None:
    """Asked of each revision is what a push asks: whether what its first parents brought is there."""
    parents = family(40_000)
    steps: list[int] = []
    ancestry = Ancestry(graph_of(parents[:stored]), steps.append)
    edges = sum(map(len, parents)) + len(parents)
    tracemalloc.start()
    try:
        for ordinal in range(stored, len(parents)):
            ancestry.add(parents[ordinal])
            reach = partial(ancestry.reaches_any, ordinal)
            assert all(reach([parent]) for parent in parents[ordinal][:2])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(steps) <= 20 * edges
    assert most < 32 << 20


def test_each_stream_revision_on_one_more_stored_head() -> None:
    count = 20_000
    steps: list[int] = []
    ancestry = Ancestry(graph_of([[] for _ in range(count)]), steps.append)
    last = ancestry.add([0])
    for below in range(1, count):
        last = ancestry.add([last, below])
        assert ancestry.reaches_any(last, [below])
    assert sum(steps) <= 12 * count
    assert all(ancestry.reaches_any(last, [below]) for below in range(0, count, 7))
    assert sum(steps) <= 20 * count


def test_a_stream_that_makes_every_answer_far_is_refused() -> None:
    """Reachability has no answer that is near for every question: the steps are charged, and end the stream."""
    allowance = Allowance()
    ancestry = Ancestry(Graph(), allowance.charge, marks_kept=0)
    parents = far_merges(40_000)

    def push() -> None:
        for ordinal, named in enumerate(parents):
            ancestry.add(named)
            ancestry.reaches_any(ordinal, [ordinal // 5 * 2])
            ancestry.reaches_any(ordinal - ordinal % 2, [ordinal // 3])

    with pytest.raises(LimitExceeded, match="steps of work for one request"):
        push()
    assert STEPS < allowance.steps <= STEPS + 3 * len(parents)


def test_a_walk_ends_when_its_client_is_gone() -> None:
    allowance = Allowance()
    ancestry = Ancestry(graph_of(far_merges(40_000)), allowance.charge)
    last = ancestry.add([39_999])
    allowance.cancelled = True
    with pytest.raises(Cancelled):
        ancestry.reaches_any(last, [0])
    allowance.cancelled = False
    assert ancestry.reaches_any(last, [1])


@pytest.mark.long
def test_memory_of_the_ancestry_of_much_history() -> None:
    tracemalloc.start()
    try:
        ancestry = Ancestry(Graph())
        for ordinal in range(125_000):
            ancestry.add([ordinal - 1, *([max(0, ordinal - 40)] if ordinal % 5 == 0 else [])] if ordinal else [])
            if ordinal % 5 == 0:
                ancestry.reaches_any(ordinal, [ordinal // 2 | 1])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 32 << 20
