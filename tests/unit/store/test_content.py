"""store.content, store.model: the graph of a stored history as a body."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bzr_builders import KINDS, TRUNK, BzrHistory
from memory_transport import MemoryTransport

from smartserver.client.exchange import read_graph
from smartserver.errors import Cancelled, CorruptRecord, NoSuchRepository
from smartserver.records.browse import LogSelector, encode_selector
from smartserver.records.content import as_graph
from smartserver.records.model import GraphNode, Parent, Tip
from smartserver.store.allowance import Allowance
from smartserver.store.content import ContentReader
from smartserver.store.model import ContentPlan
from smartserver.store.repository import PackRepository
from smartserver.vcs.bzr.kinds import TEXT


class Stored:
    """A line of four, and one on it whose second parent is a ghost."""

    def __init__(self) -> None:
        self.history = BzrHistory()
        self.line = self.history.line(4)
        self.tip = self.history.commit({b"f": b"new\n"}, [self.line[3]], [b"ghost-1"])
        self.repository = PackRepository(MemoryTransport(), "project")
        self.history.push(self.repository, self.history.parents, {TRUNK: Tip(self.tip)})

    def read(self, ordinals: Sequence[int], size: int = 1000, allowance: Allowance | None = None) -> list[GraphNode]:
        body = self.repository.begin(allowance=allowance).open_body(ContentPlan(as_graph(ordinals)))
        assert isinstance(body, ContentReader)
        chunks: list[bytes] = []
        while chunk := body.read(size):
            assert len(chunk) <= size
            chunks.append(chunk)
        assert body.read(size) == b""
        assert (body.segments, body.size) == (len(ordinals), sum(map(len, chunks)))
        return list(read_graph(chunks, KINDS))


@pytest.fixture(scope="module")
def stored() -> Stored:
    return Stored()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_ids_and_parents_are_sent(stored: Stored, size: int) -> None:
    nodes = stored.read(range(1, 5), size)
    assert nodes == [GraphNode(each, stored.history.parents[each]) for each in (*stored.line[1:], stored.tip)]
    assert nodes[-1].parents[1] == Parent(b"ghost-1", absent=True)
    assert stored.read(()) == []


def test_there_must_be_a_repository() -> None:
    selector = encode_selector(LogSelector())
    made = PackRepository(MemoryTransport(), "new").begin()
    made.create("bzr 2a", KINDS, {})
    for transaction in (made, PackRepository(MemoryTransport(), "none").begin()):
        with pytest.raises(NoSuchRepository):
            transaction.plan_read(selector, [])


def test_an_answer_that_nobody_waits_for_is_not_put_together(stored: Stored) -> None:
    """A graph of many revisions may be the work of seconds: it ends at the next one."""
    read = 0

    class Impatient(Allowance):
        def charge(self, steps: int) -> None:
            nonlocal read
            read += 1
            self.cancelled = read > 3
            super().charge(steps)

    with pytest.raises(Cancelled):
        stored.read(range(5), 1 << 20, Impatient())
    assert read == 4


def test_a_record_that_is_named_and_not_stored_is_damage(stored: Stored) -> None:
    body = stored.repository.begin().open_body(ContentPlan(iter([(0, [(TEXT, b"none")])])))
    with pytest.raises(CorruptRecord, match="record none is missing from the repository"):
        body.read(1000)
