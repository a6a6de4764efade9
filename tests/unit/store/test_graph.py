"""store.graph, ancestry, allowance: ancestors over parts and in a stream, and what it may cost to find them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from traced_memory import traced

from smartserver.errors import Cancelled, LimitExceeded
from smartserver.records.model import GraphNode, Parent
from smartserver.store import ancestry as ancestry_module
from smartserver.store.allowance import (
    CHECK,
    DECODED,
    DECODED_OF_BYTE,
    DECODED_OF_STORED,
    STEPS,
    STEPS_OF_BYTE,
    STEPS_OF_RECORD,
    STEPS_OF_STORED,
    Allowance,
)
from smartserver.store.ancestry import Ancestry
from smartserver.store.graph import Graph


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


def test_ordinals_go_through_all_parts() -> None:
    assert GRAPH.count == 7
    assert named(GRAPH, range(7)) == b"abcdefg"
    assert GRAPH.ordinal(b"z") is None
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


def graph_of_numbers(parents: list[list[int]]) -> Graph:
    nodes = [GraphNode(b"r%d" % at, tuple(Parent(b"r%d" % each) for each in named)) for at, named in enumerate(parents)]
    graph, missing = Graph().with_announced(nodes)
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
    ancestry = Ancestry(graph_of_numbers(parents[:stored]), steps.append)
    edges = sum(map(len, parents)) + len(parents)
    with traced() as memory:
        for ordinal in range(stored, len(parents)):
            ancestry.add(parents[ordinal])
            reach = partial(ancestry.reaches_any, ordinal)
            assert all(reach([parent]) for parent in parents[ordinal][:2])
    assert sum(steps) <= 20 * edges
    assert memory.peak < 32 << 20


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
    ancestry = Ancestry(graph_of_numbers(far_merges(40_000)), allowance.charge)
    last = ancestry.add([39_999])
    allowance.cancelled = True
    with pytest.raises(Cancelled):
        ancestry.reaches_any(last, [0])
    allowance.cancelled = False
    assert ancestry.reaches_any(last, [1])


def test_steps_are_limited_by_what_came_and_what_is_stored() -> None:
    allowance = Allowance()
    allowance.came(10)
    allowance.rests_on(1000)
    allowance.rests_on(900)
    most = STEPS + 10 * STEPS_OF_BYTE + 1000 * STEPS_OF_STORED
    allowance.charge(most)
    with pytest.raises(LimitExceeded) as caught:
        allowance.charge(1)
    assert str(caught.value) == f"too many steps of work for one request: {most + 1}, at most {most} are allowed"


def test_decoded_bytes_are_limited_by_what_came() -> None:
    allowance = Allowance()
    allowance.came(7)
    most = DECODED + 7 * DECODED_OF_BYTE
    allowance.decode(most)
    with pytest.raises(LimitExceeded) as caught:
        allowance.decode(1)
    assert str(caught.value) == f"too many decoded bytes of one request: {most + 1}, at most {most} are allowed"
    allowance.restart()
    allowance.decode(most)
    assert (allowance.steps, allowance.decoded) == (0, most)


def test_what_reads_content_may_do_more_for_each_record() -> None:
    allowance = Allowance()
    allowance.reads(10, 500)
    allowance.charge(STEPS + 10 * STEPS_OF_RECORD)
    allowance.decode(DECODED + 500 * DECODED_OF_STORED)
    with pytest.raises(LimitExceeded):
        allowance.charge(1)
    with pytest.raises(LimitExceeded):
        allowance.decode(1)


def test_nothing_is_charged_for_a_client_that_is_gone() -> None:
    allowance = Allowance(limited=False)
    allowance.charge(1 << 60)
    allowance.decode(1 << 60)
    allowance()
    allowance.cancelled = True
    with pytest.raises(Cancelled):
        allowance()
    with pytest.raises(Cancelled):
        allowance.charge(0)
    with pytest.raises(Cancelled):
        allowance.decode(0)
