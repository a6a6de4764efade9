from __future__ import annotations

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


def graph_of(parents: list[list[int]], parts: int = 1) -> Graph:
    graph = Graph()
    size = max(1, -(-len(parents) // parts))
    for start in range(0, len(parents), size):
        chunk = range(start, min(start + size, len(parents)))
        graph, missing = graph.with_announced(
            [
                GraphNode(b"r%d" % ordinal, tuple(Parent(b"r%d" % parent) for parent in parents[ordinal]))
                for ordinal in chunk
            ]
        )
        assert missing == []
    return graph


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "stored"), [(one_far_parent, 0), (far_merges, 5000), (many_lines, 0), (wide_merges, 5000)]
)
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


def test_a_stream_that_makes_every_answer_far_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reachability has no answer that is near for every question: the steps are charged, and end the stream."""
    allowance = Allowance()
    monkeypatch.setattr(ancestry_module, "MARKS_KEPT", 0)
    ancestry = Ancestry(Graph(), allowance.charge)
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
