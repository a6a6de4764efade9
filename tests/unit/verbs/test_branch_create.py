"""verbs.branch_create; which moves of a ref are refused is in `test_rules`."""

from __future__ import annotations

import pytest
from builders import MAIN
from verb_context import Project

from smartserver.errors import InvalidName
from smartserver.records.model import Tip
from smartserver.verbs.branch_create import BranchCreateRequest, branch_create
from smartserver.verbs.declare import Permission

TOPIC = b"refs/heads/topic"


@pytest.fixture
def project() -> Project:
    project = Project()
    line = project.history.line(2)
    project.push(line, {MAIN: line[0]})
    return project


@pytest.fixture
def line(project: Project) -> list[bytes]:
    return list(project.history.parents)


def test_a_ref_is_made_with_its_attributes(project: Project, line: list[bytes]) -> None:
    context = project.context()
    assert branch_create.function(context, BranchCreateRequest(TOPIC, line[1], b"note")).created
    assert context.transaction.ref(TOPIC) == (Tip(line[1], b"note"),)
    assert not branch_create.function(context, BranchCreateRequest(TOPIC, line[1], b"note")).created
    assert context.asked == [(Permission.CREATE, TOPIC)]


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
