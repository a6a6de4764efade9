"""verbs.repository_open, verbs.repository_verify, verbs.server_info, verbs.server_ping: those that only answer."""

from __future__ import annotations

import pytest
from builders import GIT, MAIN
from verb_context import REPORT, NotedContext, Project

from smartserver.errors import NoSuchRepository
from smartserver.store.transaction import Transaction
from smartserver.verbs.repository_open import OpenRequest, OpenResult, repository_open
from smartserver.verbs.repository_verify import VerifyRequest, VerifyResult, repository_verify
from smartserver.verbs.server_info import InfoRequest, InfoResult, server_info
from smartserver.verbs.server_ping import PingRequest, PingResult, server_ping


@pytest.fixture(scope="module")
def project() -> Project:
    project = Project()
    line = project.history.line(1)
    project.push(line, {MAIN: line[0]})
    return project


@pytest.mark.parametrize(
    ("path", "at", "rest"),
    [
        ("team/project", "team/project", ""),
        ("/team/project/", "team/project", ""),
        ("team/project/src/file.txt", "team/project", "src/file.txt"),
        ("/team/project/src", "team/project", "src"),
        ("src/file.txt", "", "src/file.txt"),
        ("", "", ""),
    ],
)
def test_open_splits_the_path(project: Project, path: str, at: str, rest: str) -> None:
    context = NotedContext(project.context().transaction, path=path, at=at)
    assert repository_open.function(context, OpenRequest()) == OpenResult(at, rest, GIT)


def test_open_says_which_branch_the_path_names(project: Project) -> None:
    transaction = project.context().transaction
    context = NotedContext(transaction, path="team/project/a/b", at="team/project", branch=b"a", inner="b")
    assert repository_open.function(context, OpenRequest()) == OpenResult("team/project", "a/b", GIT, b"a", "b")


def test_open_finds_nothing() -> None:
    context = NotedContext(Transaction("project", None), at="")
    with pytest.raises(NoSuchRepository) as none:
        repository_open.function(context, OpenRequest())
    assert none.value.path == "project"


def test_verify_passes_the_report_on(project: Project) -> None:
    assert repository_verify.function(project.context(), VerifyRequest()) == VerifyResult(1, 2, 3, 4, ["a line"], 5)
    assert REPORT.size == 4


def test_info_says_what_the_server_is(project: Project) -> None:
    assert server_info.function(project.context(), InfoRequest()) == InfoResult("1.2.3", ["Server.ping", "x"])


def test_ping_says_nothing(project: Project) -> None:
    context = project.context()
    assert server_ping.function(context, PingRequest()) == PingResult()
    assert context.asked == []
