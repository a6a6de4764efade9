"""verbs.repository_create."""

from __future__ import annotations

import msgspec
import pytest
from builders import GIT, KINDS, MAIN, SETTINGS
from verb_context import NotedContext, Project

from smartserver.errors import LimitExceeded, RepositoryExists, WrongVcs
from smartserver.store.transaction import Transaction
from smartserver.verbs.declare import Permission
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create

FIELDS = [KindField(kind.name, kind.check, kind.base) for kind in KINDS]
REQUEST = CreateRequest(GIT, FIELDS, SETTINGS)


@pytest.fixture
def project() -> Project:
    project = Project()
    line = project.history.line(1)
    project.push(line, {MAIN: line[0]})
    return project


def nothing() -> NotedContext:
    return NotedContext(Transaction("project", None))


def test_it_is_made_with_kinds_and_settings() -> None:
    context = nothing()
    assert repository_create.function(context, REQUEST).created
    assert not repository_create.function(context, REQUEST).created
    assert context.transaction.created == (GIT, KINDS, SETTINGS)
    assert context.asked == [(Permission.CREATE, b"")]


def test_settings_that_would_fill_the_root() -> None:
    large = msgspec.structs.replace(REQUEST, settings={f"s{number}": b"x" * 4096 for number in range(4)})
    context = nothing()
    with pytest.raises(LimitExceeded, match="bytes of a repository's settings"):
        repository_create.function(context, large)
    assert context.transaction.created is None


def test_one_of_the_same_vcs_is_accepted_as_it_is(project: Project) -> None:
    """The first creation decides the settings; nobody needs permission for nothing."""
    context = project.context(denied=Permission)
    other = msgspec.structs.replace(REQUEST, settings={"HEAD": b"refs/heads/other"})
    assert not repository_create.function(context, other).created
    assert context.transaction.created is None
    assert context.transaction.settings == SETTINGS
    assert context.asked == []


def test_one_that_must_be_new(project: Project) -> None:
    exclusive = msgspec.structs.replace(REQUEST, exclusive=True)
    assert repository_create.function(nothing(), exclusive).created
    with pytest.raises(RepositoryExists, match="a repository already exists at 'project'"):
        repository_create.function(project.context(), exclusive)


@pytest.mark.parametrize(
    "other",
    [{"vcs": "git sha256"}, {"kinds": [KindField("object", "git-sha256", True)]}, {"kinds": [*FIELDS, *FIELDS]}],
)
def test_another_vcs_or_other_kinds_are_refused(project: Project, other: dict[str, object]) -> None:
    context = project.context()
    with pytest.raises(WrongVcs):
        repository_create.function(context, msgspec.structs.replace(REQUEST, **other))
    assert context.transaction.created is None
