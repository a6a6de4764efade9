"""verbs.repository_get_parent_map, verbs.repository_missing: questions about the graph, ghosts included."""

from __future__ import annotations

import pytest
from builders import MAIN, request_id
from verb_context import NotedContext, Project

from smartserver.errors import MissingRevision, NoSuchBranch, NoSuchRepository
from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.model import Kind, Parent, Tip
from smartserver.records.system import SYSTEMS, System
from smartserver.store.transaction import RepositoryTransaction
from smartserver.verbs.repository_get_parent_map import (
    GetParentMapRequest,
    GetParentMapResult,
    ParentField,
    repository_get_parent_map,
)
from smartserver.verbs.repository_missing import (
    MissingRequest,
    MissingResult,
    RevisionField,
    repository_missing,
)

SIDE = b"refs/heads/side"


@pytest.fixture(scope="module")
def project() -> Project:
    """A line of six, a side of two from its second; a merge of both ends."""
    project = Project()
    line = project.history.line(6)
    side = project.history.line(2, line[1], "side")
    merge = project.history.commit({"a": b"b"}, [line[5], side[1]], "merge")
    project.push([*line, *side], {MAIN: line[5], SIDE: side[1]})
    project.push([merge], {b"refs/heads/merge": merge})
    return project


@pytest.fixture
def ids(project: Project) -> list[bytes]:
    return list(project.history.parents)


def parents(project: Project, revision: bytes) -> list[ParentField]:
    return [ParentField(each) for each in project.history.parents[revision]]


def test_the_parents_of_what_is_stored(project: Project, ids: list[bytes]) -> None:
    asked = [*ids, b"unknown", ids[0]]
    found = repository_get_parent_map.function(project.context(), GetParentMapRequest(asked))
    assert found == GetParentMapResult({each: parents(project, each) for each in ids})
    assert found.parents[ids[0]] == []
    assert len(found.parents[ids[8]]) == 2


def test_absent_parents_and_long_lists_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kind whose text names no parents: some are ghosts, and the head of the segment is longer than one read."""
    kinds = (Kind("text", "blake2b-128", True),)
    writer = SegmentWriter(kinds, bulk=False, texts=lambda _kind, _key: b"")
    first = b"first"
    ghosts = [Parent(b"ghost %d " % number * 20, True) for number in range(30)]
    listed = [ghosts[0], Parent(first), *ghosts[1:]]
    body = writer.segment(first, [], [NewRecord(0, b"a", b"", b"text", [], b"")])
    body += writer.segment(b"second", listed, [NewRecord(0, b"b", b"", b"text", [], b"")])
    project = Project()
    another = System()
    another.kinds = kinds
    monkeypatch.setitem(SYSTEMS, "another 1", another)

    def make(transaction: RepositoryTransaction) -> bytes:
        transaction.create("another 1", kinds, {})
        transaction.set_ref(MAIN, (Tip(b"second"),))
        return b""

    made = project.repository.begin(b"", "user")
    made.create("another 1", kinds, {})
    sent = project.repository.receive(made)
    sent.write(body)
    sent.finish(2, len(body))
    project.repository.commit(request_id(), 0, "user", make, sent)
    found = repository_get_parent_map.function(project.context(), GetParentMapRequest([b"second", ghosts[0].id]))
    assert found.parents == {b"second": [ParentField(each.id, each.absent) for each in listed]}
    told = repository_missing.function(project.context(), MissingRequest([MAIN], mine=[ghosts[0].id, first]))
    assert [each.id for each in told.revisions] == [first, b"second"]
    assert (told.revisions[1].parents, told.lacking) == (found.parents[b"second"], b"\x01")


def missing(project: Project, request: MissingRequest) -> MissingResult:
    return repository_missing.function(project.context(), request)


def test_what_the_client_lacks_parents_first(project: Project, ids: list[bytes]) -> None:
    found = missing(project, MissingRequest([MAIN], haves=[ids[2], b"unknown", ids[0]]))
    assert found.revisions == [RevisionField(each, parents(project, each)) for each in ids[3:6]]
    assert (found.count, found.common, found.lacking) == (3, b"\x05", b"")


def test_what_the_server_lacks_of_the_clients(project: Project, ids: list[bytes]) -> None:
    """Stored on a side, or nowhere: neither is in the history of the branch."""
    mine = [ids[5], ids[7], b"unknown", ids[1], ids[6], ids[8], *[b"new"] * 5]
    assert missing(project, MissingRequest([MAIN], mine=mine)).lacking == bytes([0b11110110, 0b111])
    assert missing(project, MissingRequest([], [ids[8]], mine=mine)).lacking == bytes([0b11000100, 0b111])
    assert missing(project, MissingRequest(mine=mine[:2])) == MissingResult([], 0, b"", b"\x03")


def test_the_newest_where_there_are_many(project: Project, ids: list[bytes]) -> None:
    for most, told in ((0, []), (2, ids[4:6]), (9, ids[:6])):
        found = missing(project, MissingRequest([MAIN], most=most))
        assert ([each.id for each in found.revisions], found.count) == (told, 6)


def test_what_is_not_there(project: Project) -> None:
    with pytest.raises(NoSuchBranch):
        missing(project, MissingRequest([b"refs/heads/x"]))
    with pytest.raises(MissingRevision):
        missing(project, MissingRequest(ids=[b"unknown"]))
    nowhere = NotedContext(RepositoryTransaction("project", None))
    for ask in (
        lambda: repository_missing.function(nowhere, MissingRequest()),
        lambda: repository_get_parent_map.function(nowhere, GetParentMapRequest([])),
    ):
        with pytest.raises(NoSuchRepository):
            ask()
