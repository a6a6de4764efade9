"""verbs.branch_delete."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN
from verb_context import Project

from smartserver.errors import HeadBranch, StaleLease
from smartserver.records.model import Tip
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


def test_expected_is_compared_with_the_tip(project: Project, tip: bytes) -> None:
    for name, wrong, actual in ((TOPIC, b"", tip), (TOPIC, bytes(20), tip), (b"refs/heads/x", tip, b"")):
        context = project.context()
        with pytest.raises(StaleLease) as stale:
            branch_delete.function(context, BranchDeleteRequest(name, wrong))
        assert (stale.value.ref, stale.value.expected, stale.value.actual) == (name, wrong, actual)
        assert context.transaction.changes == {}
    assert branch_delete.function(project.context(), BranchDeleteRequest(TOPIC, tip)).old == [tip]


def test_the_branch_of_head_stays(project: Project) -> None:
    context = project.context()
    with pytest.raises(HeadBranch) as head:
        branch_delete.function(context, BranchDeleteRequest(MAIN))
    assert head.value.ref == MAIN
    assert context.transaction.changes == {}


def test_a_repository_without_head_lets_any_branch_go() -> None:
    project = Project()
    line = project.history.line(1)
    project.push(line, {MAIN: line[0]}, lambda transaction: transaction.create(GIT, KINDS, {}))
    assert branch_delete.function(project.context(), BranchDeleteRequest(MAIN)).old == line


def test_every_tip_it_had_is_told(project: Project, tip: bytes) -> None:
    context = project.context()
    other = list(project.history.parents)[1]
    context.transaction.set_ref(TOPIC, (Tip(tip), Tip(other)))
    assert branch_delete.function(context, BranchDeleteRequest(TOPIC)).old == sorted([tip, other])
