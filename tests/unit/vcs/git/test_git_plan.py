"""vcs.git.plan: the revisions of a plan, each as it was given, in little memory."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator

from smartserver.vcs.git.objects import COMMIT
from smartserver.vcs.git.plan import Revision, Revisions, graph_of


def key(name: str, width: int = 20) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:width]


def line(count: int) -> Iterator[Revision]:
    before: tuple[bytes, ...] = ()
    for n in range(count):
        yield Revision(key(f"c{n}"), COMMIT, before, key(f"t{n}"))
        before = (key(f"c{n}"),)


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
