from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

import pytest
from pack_samples import stored

from smartserver.errors import Cancelled
from smartserver.records.model import GraphNode, Parent
from smartserver.store import graph as graph_module
from smartserver.store.allowance import CHECK, Allowance
from smartserver.store.graph import BLOCK, Graph
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


def missing(wants: bytes, haves: bytes, cut: bytes = b"") -> bytes:
    return named(GRAPH, GRAPH.missing(ordinals(GRAPH, wants), ordinals(GRAPH, haves), ordinals(GRAPH, cut)))


def test_ordinals_go_through_all_parts() -> None:
    assert GRAPH.count == 7
    assert named(GRAPH, range(7)) == b"abcdefg"
    assert ordinals(GRAPH, b"abcdefg") == list(range(7))
    assert GRAPH.ordinal(b"z") is None
    assert [GRAPH.part_at(ordinal) for ordinal in range(7)] == [0, 0, 0, 0, 1, 1, 2]
    for wrong in (-1, 7):
        with pytest.raises(IndexError, match=f"no revision has the ordinal {wrong}, there are 7"):
            GRAPH.parents(wrong)


def test_parents_in_this_part_and_earlier_ones() -> None:
    assert [named(GRAPH, GRAPH.parents(ordinal)) for ordinal in range(7)] == [b"", b"a", b"b", b"a", b"d", b"ce", b"f"]


@pytest.mark.parametrize(
    ("wants", "haves", "cut", "expected"),
    [
        (b"g", b"", b"", b"abcdefg"),
        (b"g", b"f", b"", b"g"),
        (b"g", b"c", b"", b"defg"),
        (b"g", b"e", b"", b"bcfg"),
        (b"g", b"ce", b"", b"fg"),
        (b"ce", b"b", b"", b"cde"),
        (b"g", b"g", b"", b""),
        (b"c", b"g", b"", b""),
        (b"", b"g", b"", b""),
        (b"g", b"f", b"e", b"deg"),  # The puller has f, without e and what only e reaches.
        (b"g", b"f", b"d", b"dg"),
        (b"g", b"f", b"ce", b"abcdeg"),
        (b"g", b"fd", b"e", b"eg"),  # It has d by another way.
        (b"g", b"fe", b"e", b"deg"),  # What it says it lacks it lacks.
        (b"f", b"g", b"e", b"de"),
        (b"c", b"g", b"e", b""),  # Not asked for.
        (b"g", b"f", b"g", b"g"),
        (b"g", b"f", b"abcde", b"abcdeg"),
    ],
)
def test_missing(wants: bytes, haves: bytes, cut: bytes, expected: bytes) -> None:
    assert missing(wants, haves, cut) == expected


def test_is_ancestor() -> None:
    reach = {b"a": b"a", b"b": b"ab", b"c": b"abc", b"d": b"ad", b"e": b"ade", b"f": b"abcdef", b"g": b"abcdefg"}
    for revision, ancestors in reach.items():
        for name in b"abcdefg":
            expected = name in ancestors
            ancestor, descendant = ordinals(GRAPH, bytes((name,)) + revision)
            assert GRAPH.is_ancestor(ancestor, descendant) is expected


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (b"", b""),
        (b"c", b"c"),
        (b"ce", b"ce"),
        (b"abcde", b"ce"),
        (b"gabd", b"g"),
        (b"cg", b"g"),
        (b"bd", b"bd"),
        (b"ef", b"f"),
    ],
)
def test_heads(of: bytes, expected: bytes) -> None:
    assert named(GRAPH, GRAPH.heads(ordinals(GRAPH, of))) == expected


def test_an_absent_edge_is_cut_though_the_parent_is_here() -> None:
    graph = graph_of({b"a": (), b"b": (b"a",)}, {b"c": (b"B", b"a")})
    assert named(graph, graph.parents(2)) == b"a"
    assert not graph.is_ancestor(1, 2)
    assert named(graph, graph.missing([2], [])) == b"ac"


def test_a_ghost_that_comes_after_its_child_is_another_revision() -> None:
    graph = graph_of({b"b": (b"A",)}, {b"a": (), b"c": (b"a", b"b")})
    assert named(graph, graph.missing([0], [])) == b"b"
    assert named(graph, graph.missing([2], [0])) == b"ac"


def test_announced_revisions_lie_above_the_stored_ones() -> None:
    graph, lacking = GRAPH.with_announced(
        announced({b"f": (b"c", b"e"), b"h": (b"g", b"Q"), b"g": (b"f",), b"i": (b"h", b"d")})
    )
    assert not lacking
    assert graph.count == 9
    assert named(graph, (7, 8)) == b"hi"
    assert named(graph, graph.parents(8)) == b"hd"
    assert graph.is_ancestor(0, 8)
    assert GRAPH.count == 7  # The stored graph is as it was.


def test_announcing_nothing_new_gives_the_same_graph() -> None:
    graph, lacking = GRAPH.with_announced(announced({b"a": (), b"g": (b"f",)}))
    assert graph is GRAPH
    assert not lacking


def test_parents_neither_here_nor_before_are_named_once() -> None:
    _, lacking = GRAPH.with_announced(announced({b"h": (b"x", b"i"), b"i": (b"x", b"y", b"Z")}))
    assert lacking == [b"x", b"i", b"y"]


def line(count: int, step: int = 1) -> Graph:
    """`count` revisions, the parents of each `step` before it."""
    return graph_of({b"%d" % number: [b"%d" % (number - step)] if number >= step else [] for number in range(count)})


def test_a_scan_over_many_blocks() -> None:
    count = 3 * BLOCK + 5
    top = count - 1  # Even, and of two lines of revisions the even one's.
    graph = line(count, 2)
    assert graph.missing([top], []) == list(range(0, count, 2))
    assert graph.missing([top, top - 1], [BLOCK]) == [number for number in range(count) if number > BLOCK or number % 2]
    assert graph.is_ancestor(0, top)
    assert not graph.is_ancestor(1, top)
    assert graph.heads([0, 1, BLOCK, top, 2 * BLOCK]) == [1, top]


def test_a_scan_stops_on_every_side_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "BLOCK_BITS", 2)
    monkeypatch.setattr(graph_module, "BLOCK", 4)
    graph = line(19, 3)
    for low in range(19):
        for high in range(19):
            assert graph.is_ancestor(low, high) is (low <= high and (high - low) % 3 == 0)


def test_a_small_difference_touches_little_of_a_large_graph() -> None:
    """Only the blocks with marks are looked at."""
    graph = line(5 * BLOCK)
    part = graph.parts[0]
    read = []

    class Watched(Sequence[int]):
        def __len__(self) -> int:
            return len(part.starts)

        def __getitem__(self, at: int) -> int:  # type: ignore[override]
            read.append(at)
            return part.starts[at]

    watched = graph_module.Part(0, part.count, Watched(), part.entries, part.outside, part.find, part.revision)
    top = 5 * BLOCK - 1
    assert Graph([watched]).missing([top], [top - 1]) == [top]
    assert len(read) == 2


def test_random_graphs_agree_with_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "BLOCK_BITS", 3)
    monkeypatch.setattr(graph_module, "BLOCK", 8)
    for seed in range(30):
        chance = random.Random(seed)
        graph = Graph()
        ancestors: list[set[int]] = []
        while graph.count < 70:
            step: dict[bytes, list[bytes]] = {}
            for number in range(graph.count, graph.count + chance.randrange(1, 30)):
                parents = chance.sample(range(number), min(number, chance.choice((0, 1, 1, 1, 2, 3))))
                step[b"%d" % number] = [b"%d" % parent for parent in parents]
                ancestors.append({number}.union(*(ancestors[parent] for parent in parents)))
            graph, _ = graph.with_announced(announced(step))
        for _ in range(20):
            wants = chance.sample(range(graph.count), chance.randrange(1, 4))
            haves = chance.sample(range(graph.count), chance.randrange(4))
            wanted: set[int] = set().union(*(ancestors[want] for want in wants))
            had: set[int] = set().union(*(ancestors[have] for have in haves))
            assert graph.missing(wants, haves) == sorted(wanted - had), seed
            some = chance.sample(range(graph.count), 6)
            heads = [one for one in some if not any(one in ancestors[other] and one != other for other in some)]
            assert graph.heads(some) == sorted(heads), seed
            low, high = chance.randrange(graph.count), chance.randrange(graph.count)
            assert graph.is_ancestor(low, high) is (low in ancestors[high]), seed


def test_packs_and_their_outside_parents() -> None:
    made = stored([3, 4, 2])
    graph = Snapshot.open(made.transport, made.root()).graph
    assert [(part.first, part.count) for part in graph.parts] == [(0, 3), (3, 4), (7, 2)]
    assert [graph.parents(ordinal) for ordinal in range(9)] == [(), *((ordinal,) for ordinal in range(8))]
    assert [graph.revision(ordinal) for ordinal in range(9)] == [b"revision-%04d" % number for number in range(9)]
    assert graph.ordinal(b"revision-0008") == 8


def test_a_pack_whose_parents_are_nowhere() -> None:
    made = stored([3, 2])
    index = Snapshot.open(made.transport, made.root()).packs[1].index
    graph, lacking = Graph().with_index(index)
    assert lacking == [b"revision-0002"]
    assert graph.count == 2


def test_a_part_is_taken_over_only_where_it_lies_as_it_lay() -> None:
    made = stored([3, 2])
    snapshot = Snapshot.open(made.transport, made.root())
    first, second = snapshot.graph.parts
    graph, lacking = Graph([first]).with_index(snapshot.packs[1].index, second)
    assert graph.parts[1] is second
    assert not lacking
    moved, lacking = Graph().with_index(snapshot.packs[1].index, second)
    assert moved.parts[0] is not second
    assert lacking == [b"revision-0002"]


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
