"""verbs.branch_create, branch_delete; which moves of a ref are refused is in `test_rules`."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN
from verb_context import Project

from smartserver.errors import HeadBranch, InvalidName, StaleLease
from smartserver.records.model import Tip
from smartserver.verbs.branch_create import BranchCreateRequest, branch_create
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.declare import Permission

TOPIC, NEW = b"refs/heads/topic", b"refs/heads/new"


@pytest.fixture
def project() -> Project:
    project = Project()
    line = project.history.line(2)
    project.push(line, {MAIN: line[1], TOPIC: line[0]})
    return project


@pytest.fixture
def line(project: Project) -> list[bytes]:
    return list(project.history.parents)


def test_a_ref_is_made_with_its_attributes(project: Project, line: list[bytes]) -> None:
    context = project.context()
    assert branch_create.function(context, BranchCreateRequest(NEW, line[1], b"note")).created
    assert context.transaction.ref(NEW) == (Tip(line[1], b"note"),)
    assert not branch_create.function(context, BranchCreateRequest(NEW, line[1], b"note")).created
    assert context.asked == [(Permission.CREATE, NEW)]


@pytest.mark.parametrize(
    ("name", "other"),
    [(MAIN + b"/sub", MAIN), (MAIN + b"/a/b", MAIN), (b"refs/heads", b"refs/heads/..."), (b"refs", b"refs/...")],
)
def test_no_ref_is_both_a_name_and_a_folder(project: Project, line: list[bytes], name: bytes, other: bytes) -> None:
    with pytest.raises(InvalidName, match=repr(other.decode())):
        branch_create.function(project.context(), BranchCreateRequest(name, line[1]))


def test_a_folder_of_refs_ends_with_its_last_ref(project: Project, line: list[bytes]) -> None:
    context = project.context()
    assert branch_create.function(context, BranchCreateRequest(b"refs/heads/a/b", line[1])).created
    with pytest.raises(InvalidName):
        branch_create.function(context, BranchCreateRequest(b"refs/heads/a", line[1]))
    context.transaction.set_ref(b"refs/heads/a/b", None)
    assert branch_create.function(context, BranchCreateRequest(b"refs/heads/a", line[1])).created
    with pytest.raises(InvalidName):
        branch_create.function(context, BranchCreateRequest(b"refs/heads/a/b", line[1]))


def test_a_ref_goes(project: Project, line: list[bytes]) -> None:
    context = project.context()
    assert branch_delete.function(context, BranchDeleteRequest(TOPIC)).old == [line[0]]
    assert context.transaction.ref(TOPIC) is None
    assert context.transaction.changes == {TOPIC: None}
    assert context.asked == [(Permission.DELETE, TOPIC)]


def test_an_absent_one_is_success(project: Project) -> None:
    context = project.context(denied=Permission)
    for expected in (None, b""):
        assert branch_delete.function(context, BranchDeleteRequest(b"refs/heads/x", expected)).old == []
    assert context.transaction.changes == {}


def test_expected_is_compared_with_the_tip(project: Project, line: list[bytes]) -> None:
    for name, wrong, actual in ((TOPIC, b"", line[0]), (TOPIC, bytes(20), line[0]), (b"refs/heads/x", line[0], b"")):
        context = project.context()
        with pytest.raises(StaleLease) as stale:
            branch_delete.function(context, BranchDeleteRequest(name, wrong))
        assert (stale.value.ref, stale.value.expected, stale.value.actual) == (name, wrong, actual)
        assert context.transaction.changes == {}
    assert branch_delete.function(project.context(), BranchDeleteRequest(TOPIC, line[0])).old == [line[0]]


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


def test_every_tip_it_had_is_told(project: Project, line: list[bytes]) -> None:
    context = project.context()
    context.transaction.set_ref(TOPIC, tuple(map(Tip, line)))
    assert branch_delete.function(context, BranchDeleteRequest(TOPIC)).old == sorted(line)
