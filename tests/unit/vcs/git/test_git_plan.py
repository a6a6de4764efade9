"""vcs.git.plan: the revisions of a plan, each as it was given, in little memory."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest

from smartserver.records.model import GraphNode, Parent
from smartserver.vcs.git.objects import BLOB, COMMIT, TAG
from smartserver.vcs.git.plan import Revision, Revisions, graph_of


def key(name: str, width: int = 20) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:width]


def line(count: int) -> Iterator[Revision]:
    before: tuple[bytes, ...] = ()
    for n in range(count):
        yield Revision(key(f"c{n}"), COMMIT, before, key(f"t{n}"))
        before = (key(f"c{n}"),)


@pytest.mark.parametrize("width", [20, 32])
def test_revisions_are_given_back(width: int) -> None:
    given = [
        Revision(key("a", width), COMMIT, (), key("tree a", width)),
        Revision(key("b", width), COMMIT, (key("a", width), key("outside", width)), key("tree b", width)),
        Revision(key("t", width), TAG, (key("b", width),), b""),
        Revision(key("blob", width), BLOB, (), key("blob", width)),
    ]
    plan = Revisions(given)
    assert list(plan) == given
    assert [plan[n] for n in range(-4, 4)] == given + given
    assert list(plan[1:3]) == given[1:3]
    assert len(plan) == 4
    with pytest.raises(IndexError):
        plan[4]
    assert list(plan.commits()) == [key("a", width), key("b", width)]
    assert plan.tree_of(key("b", width)) == key("tree b", width)
    assert plan.tree_of(key("t", width)) is None
    assert plan.tree_of(key("outside", width)) is None
    assert plan.has(key("t", width))
    assert not plan.has(key("outside", width))
    graph = graph_of(plan)
    assert list(graph) == [graph[n] for n in range(4)] == list(graph[:2]) + list(graph[2:])
    assert graph[1] == GraphNode(key("b", width), (Parent(key("a", width)), Parent(key("outside", width))))


def test_memory_of_a_plan() -> None:
    count = 10_000
    tracemalloc.start()
    try:
        plan = Revisions(line(count))
        graph = graph_of(plan)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(graph) == count
    assert taken / count < 200
