"""verbs.branch_set_last_revision: what it passes to the rules and what it answers; the rules have their own tests."""

from __future__ import annotations

import pytest
from builders import MAIN
from verb_context import Project

from smartserver.errors import BranchExists, DivergedBranches, NoSuchBranch, StaleLease
from smartserver.records.model import Tip
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.rules import Rule

TOPIC = b"refs/heads/topic"


@pytest.fixture
def project() -> Project:
    project = Project()
    line = project.history.line(3)
    project.push(line, {MAIN: line[1]})
    return project


@pytest.fixture
def line(project: Project) -> list[bytes]:
    return list(project.history.parents)


def test_it_tells_where_the_ref_was(project: Project, line: list[bytes]) -> None:
    context = project.context()
    run = branch_set_last_revision.function
    assert run(context, SetLastRevisionRequest(MAIN, line[1])).old == [line[1]]
    assert context.transaction.changes == {}
    assert run(context, SetLastRevisionRequest(MAIN, line[2])).old == [line[1]]
    assert run(context, SetLastRevisionRequest(TOPIC, line[0])).old == []
    assert context.transaction.refs() == {MAIN: (Tip(line[2]),), TOPIC: (Tip(line[0]),)}


def test_attributes_go_with_the_tip(project: Project, line: list[bytes]) -> None:
    context = project.context()
    branch_set_last_revision.function(context, SetLastRevisionRequest(MAIN, line[2], attributes=b"note"))
    assert context.transaction.ref(MAIN) == (Tip(line[2], b"note"),)


def test_every_argument_reaches_the_rules(project: Project, line: list[bytes]) -> None:
    context = project.context()
    run = branch_set_last_revision.function
    with pytest.raises(DivergedBranches):
        run(context, SetLastRevisionRequest(MAIN, line[0]))
    with pytest.raises(BranchExists):
        run(context, SetLastRevisionRequest(MAIN, line[2], Rule.NEW))
    with pytest.raises(NoSuchBranch):
        run(context, SetLastRevisionRequest(TOPIC, line[2], create=False))
    with pytest.raises(StaleLease):
        run(context, SetLastRevisionRequest(MAIN, line[0], Rule.LEASE, expected=line[2]))
    assert context.transaction.changes == {}
    assert run(context, SetLastRevisionRequest(MAIN, line[0], Rule.LEASE, expected=line[1])).old == [line[1]]
    assert run(context, SetLastRevisionRequest(TOPIC, line[0], Rule.LEASE)).old == []
