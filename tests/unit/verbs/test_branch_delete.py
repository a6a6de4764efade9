"""verbs.branch_delete."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN
from verb_context import Project

from smartserver.errors import HeadBranch, StaleLease
from smartserver.records.model import Tip
from smartserver.store.transaction import Transaction
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.declare import Permission

TOPIC = b"refs/heads/topic"


@pytest.fixture
def project() -> Project:
    project = Project()
    line = project.history.line(2)
    project.push(line, {MAIN: line[1], TOPIC: line[0]})
    return project


@pytest.fixture
def tip(project: Project) -> bytes:
    return next(iter(project.history.parents))


def test_a_ref_goes(project: Project, tip: bytes) -> None:
    context = project.context()
    assert branch_delete.function(context, BranchDeleteRequest(TOPIC)).old == [tip]
    assert context.transaction.ref(TOPIC) is None
    assert context.transaction.changes == {TOPIC: None}
    assert context.asked == [(Permission.DELETE, TOPIC)]


def test_an_absent_one_is_success(project: Project) -> None:
    context = project.context(denied=Permission)
    for expected in (None, b""):
        assert branch_delete.function(context, BranchDeleteRequest(b"refs/heads/x", expected)).old == []
    assert context.transaction.changes == {}


def test_an_absent_one_is_not_at_the_expected_tip(project: Project, tip: bytes) -> None:
    context = project.context()
    with pytest.raises(StaleLease) as stale:
        branch_delete.function(context, BranchDeleteRequest(b"refs/heads/x", tip))
    assert (stale.value.expected, stale.value.actual) == (tip, b"")
    assert context.transaction.changes == {}


def test_expected_is_compared_with_the_tip(project: Project, tip: bytes) -> None:
    for wrong in (b"", bytes(20)):
        context = project.context()
        with pytest.raises(StaleLease) as stale:
            branch_delete.function(context, BranchDeleteRequest(TOPIC, wrong))
        assert (stale.value.ref, stale.value.expected, stale.value.actual) == (TOPIC, wrong, tip)
        assert context.transaction.changes == {}
    assert branch_delete.function(context, BranchDeleteRequest(TOPIC, tip)).old == [tip]


def test_the_branch_of_head_stays(project: Project) -> None:
    context = project.context()
    with pytest.raises(HeadBranch) as head:
        branch_delete.function(context, BranchDeleteRequest(MAIN))
    assert head.value.ref == MAIN
    assert context.transaction.changes == {}


def test_a_repository_without_head_lets_any_branch_go() -> None:
    project = Project()
    line = project.history.line(1)
    project.push(line, {MAIN: line[0]}, _create_without_head)
    assert branch_delete.function(project.context(), BranchDeleteRequest(MAIN)).old == line


def _create_without_head(transaction: Transaction) -> None:
    transaction.create(GIT, KINDS, {})


def test_every_tip_it_had_is_told(project: Project, tip: bytes) -> None:
    context = project.context()
    other = list(project.history.parents)[1]
    context.transaction.set_ref(TOPIC, (Tip(tip), Tip(other)))
    assert branch_delete.function(context, BranchDeleteRequest(TOPIC)).old == sorted([tip, other])
