"""verbs.repository_insert_pack: when a push is cut short because much of it is held."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN, SETTINGS
from verb_context import NotedContext, Project

from smartserver.errors import KnownRevisions, MissingParents, NoSuchRepository
from smartserver.records.model import GraphNode, Parent
from smartserver.store.transaction import Transaction
from smartserver.verbs.repository_insert_pack import (
    KNOWN_AT_LEAST,
    KNOWN_SHARE,
    InsertPackRequest,
    repository_insert_pack,
)

HELD = 20
REQUEST = InsertPackRequest()
run = repository_insert_pack.function


@pytest.fixture(scope="module")
def project() -> Project:
    project = Project()
    line = project.history.line(200)
    project.push(line[:HELD], {MAIN: line[HELD - 1]})
    return project


@pytest.fixture(scope="module")
def line(project: Project) -> list[bytes]:
    return list(project.history.parents)


@pytest.mark.parametrize(
    ("held", "new", "cut"),
    [
        (0, 1, False),
        (0, 0, False),
        (1, 0, True),
        (1, KNOWN_SHARE - 1, True),
        (1, KNOWN_SHARE, False),
        (2, 2 * KNOWN_SHARE - 2, True),
        (2, 2 * KNOWN_SHARE - 1, False),
        (KNOWN_AT_LEAST - 1, 150, False),
        (KNOWN_AT_LEAST, 150, True),
        (HELD, 0, True),
    ],
)
def test_known(project: Project, line: list[bytes], held: int, new: int, cut: bool) -> None:
    announced = line[HELD - held : HELD + new]
    if cut:
        with pytest.raises(KnownRevisions) as known:
            run(project.context(announced, early=True), REQUEST)
        assert known.value.tips == [line[HELD - 1]]
    else:
        assert run(project.context(announced, early=True), REQUEST).new == new
    # Once the body is there, what is held does no harm.
    assert run(project.context(announced), REQUEST).new == new


def test_parents_must_be_there(project: Project, line: list[bytes]) -> None:
    for early in (True, False):
        with pytest.raises(MissingParents) as missing:
            run(project.context(line[HELD + 1 : HELD + 3], early=early), REQUEST)
        assert missing.value.revisions == [line[HELD]]


def test_without_a_repository_no_parent_is_missed(project: Project, line: list[bytes]) -> None:
    """A client whose repository is gone must learn that, also from a dry run, and make it again."""
    transaction = Transaction("project", None, [project.history.announced(line[HELD])])
    for early in (True, False):
        with pytest.raises(NoSuchRepository):
            run(NotedContext(transaction, early=early), REQUEST)


def test_a_parent_marked_absent_need_not_be(project: Project) -> None:
    shallow = GraphNode(b"\1" * 20, (Parent(b"\2" * 20, absent=True),))
    transaction = Transaction("project", project.repository.snapshot(), [shallow])
    assert run(NotedContext(transaction), REQUEST).new == 1


def test_into_a_repository_made_with_it(line: list[bytes], project: Project) -> None:
    graph = [project.history.announced(each) for each in line[:3]]
    transaction = Transaction("other", None, graph)
    with pytest.raises(NoSuchRepository):
        run(NotedContext(transaction, early=True), REQUEST)
    transaction.create(GIT, KINDS, SETTINGS)
    assert run(NotedContext(transaction, early=True), REQUEST).new == 3
