"""Ancestry over parts with any cuts agrees with sets of ancestors; an index finds what is in its pack, and merged
indexes are the index of the joined pack."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from memory_transport import MemoryTransport

from smartserver.records.announced import AnnouncedGraph
from smartserver.records.model import BaseTag, Entry, GraphNode, Kind, Parent
from smartserver.records.segment import ZSTD, encode_graph, encode_segment
from smartserver.store import ancestry as ancestry_module
from smartserver.store import graph as graph_module
from smartserver.store.ancestry import MERGES, QUESTION, Ancestry
from smartserver.store.graph import Graph
from smartserver.store.index import NO_BASE, Index, Row, record_digest
from smartserver.store.index_build import merge, rebuild
from smartserver.store.pack import PackReader, PackWriter


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


KINDS = (Kind("a", "blake2b-128", True), Kind("b", "sha1-key", True))


class Drawn(NamedTuple):
    """A revision: numbers of its parents, whether each is absent; its records as (kind, key), base or -1, size."""

    parents: list[tuple[int, bool]]
    records: list[tuple[int, int, int, int]]


RECORD = st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(-1, 30), st.integers(0, 5000))


@st.composite
def packs(draw: st.DrawFn) -> list[list[Drawn]]:
    """Packs of revisions; the first pack is what the others rest on."""
    number = 0
    found: list[list[Drawn]] = []
    for _ in range(draw(st.integers(2, 4))):
        pack = []
        for _ in range(draw(st.integers(1, 4))):
            parent = st.tuples(st.integers(0, number - 1), st.booleans()) if number else st.nothing()
            parents = draw(st.lists(parent, max_size=3, unique_by=lambda named: named[0])) if number else []
            records = draw(st.lists(RECORD, max_size=6, unique_by=lambda record: record[:2]))
            pack.append(Drawn(parents, records))
            number += 1
        found.append(pack)
    return found


def segments_of(drawn: list[list[Drawn]]) -> list[list[bytes]]:
    """The segments; a base is the key of a record that came before, of the same kind. No frame is read."""
    number = 0
    keys: tuple[list[bytes], list[bytes]] = ([], [])
    found = []
    for pack in drawn:
        segments = []
        for revision in pack:
            entries: list[Entry] = []
            for kind, key_number, base_number, size in revision.records:
                key = b"key-%d" % key_number
                base = keys[kind][base_number % len(keys[kind])] if base_number >= 0 and keys[kind] else b""
                base = b"" if base == key else base
                tag = BaseTag.FULL_KEY if base else BaseTag.NONE
                check = bytes(16) if kind == 0 else b""
                entries.append(Entry(kind, ZSTD, key, b"", tag, base, size, 3, check))
                keys[kind].append(key)
            parents = [Parent(b"id-%d" % parent, absent) for parent, absent in revision.parents]
            segments.append(encode_segment(b"id-%d" % number, parents, entries, [b"zst"] * len(entries), KINDS))
            number += 1
        found.append(segments)
    return found


def pack_of(segments: list[bytes]) -> PackReader:
    transport = MemoryTransport()
    writer = PackWriter(transport.create("pack"), KINDS)
    for segment in segments:
        writer.append(segment)
    length, _ = writer.finish()
    return PackReader(transport.open_read("pack"), length, "pack")


def resolver(before: list[Index]) -> Callable[[int, bytes], Row | None]:
    def resolve(kind: int, key: bytes) -> Row | None:
        for index in before:
            if rows := index.find_digest(record_digest(kind, key)):
                return index.row(rows[0])
        return None

    return resolve


@given(packs(), st.integers(0, 2))
def test_merged_is_what_is_built_from_the_joined_pack(drawn: list[list[Drawn]], resting: int) -> None:
    """Neighbours are merged from any pack on; what lies before them stays outside and external."""
    segments = segments_of(drawn)
    indexes: list[Index] = []
    for content in segments:
        indexes.append(Index.of(rebuild(pack_of(content), resolver(indexes)), "index"))
    first = min(resting, len(segments) - 1)
    joined = pack_of([segment for content in segments[first:] for segment in content])
    resolve = resolver(indexes[:first])
    merged = merge(indexes[first:], joined.length, joined.trailer(), resolve)
    assert b"".join(merged) == rebuild(joined, resolve)


@given(packs())
def test_joining_changes_no_depth_and_no_base(drawn: list[list[Drawn]]) -> None:
    """A base is the copy at the lowest position, so no row's depth depends on how packs were cut."""
    segments = segments_of(drawn)
    indexes: list[Index] = []
    for content in segments:
        indexes.append(Index.of(rebuild(pack_of(content), resolver(indexes)), "index"))
    whole = Index.of(b"".join(merge(indexes, 0, bytes(16))), "index")
    first = 0
    for index in indexes:
        for row in range(index.records):
            (same,) = (
                at
                for at in whole.find_digest(index.digest(row))
                if whole.at(at).segment == first + index.at(row).segment
            )
            assert whole.row(same) == index.row(row)
        first += index.segments
    for row in range(whole.records):
        if (base := whole.at(row).base) != NO_BASE:
            assert base == whole.find_digest(whole.digest(base))[0]
            assert whole.at(row).depth == whole.at(base).depth + 1
