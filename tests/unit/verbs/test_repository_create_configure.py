"""verbs.repository_create, repository_configure: what a repository is, its settings, and how many there may be."""

from __future__ import annotations

import msgspec
import pytest
from builders import GIT, KINDS, MAIN, SETTINGS
from verb_context import NotedContext, Project

from smartserver.errors import LimitExceeded, RepositoryExists, WrongVcs
from smartserver.store.transaction import Transaction
from smartserver.verbs.declare import Permission
from smartserver.verbs.repository_configure import MAX_SETTINGS_BYTES, ConfigureRequest, repository_configure
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


def test_settings_are_set_and_removed(project: Project) -> None:
    context = project.context()
    request = ConfigureRequest({"HEAD": b"refs/heads/x", "description": b"of it", "absent": None})
    assert repository_configure.function(context, request).old == SETTINGS
    assert context.transaction.setting_changes == {"HEAD": b"refs/heads/x", "description": b"of it"}
    assert context.transaction.settings == {"HEAD": b"refs/heads/x", "description": b"of it"}
    back = ConfigureRequest({"HEAD": MAIN, "description": None})
    assert repository_configure.function(context, back).old == {"HEAD": b"refs/heads/x", "description": b"of it"}
    assert context.transaction.setting_changes == {}


def test_no_more_settings_than_may_be(project: Project) -> None:
    context = project.context()
    many: dict[str, bytes | None] = {f"s{number}": b"" for number in range(64)}
    with pytest.raises(LimitExceeded):
        repository_configure.function(context, ConfigureRequest(many))
    repository_configure.function(context, ConfigureRequest({**many, "s0": None}))
    with pytest.raises(LimitExceeded):
        repository_configure.function(context, ConfigureRequest({"s0": b""}))


def test_settings_leave_the_root_its_room(project: Project) -> None:
    """A writer could fill it, and nobody could push any more."""
    context = project.context()
    taken = len("HEAD") + len(MAIN)
    values: dict[str, bytes | None] = {f"s{number}": b"x" * 4094 for number in range(3)}
    rest = MAX_SETTINGS_BYTES - taken - 3 * 4096 - 2
    with pytest.raises(
        LimitExceeded, match="too many bytes of a repository's settings: 16385, at most 16384 are allowed"
    ):
        repository_configure.function(context, ConfigureRequest({**values, "s3": b"x" * (rest + 1)}))
    assert context.transaction.setting_changes == {}
    repository_configure.function(context, ConfigureRequest({**values, "s3": b"x" * rest}))
    # What takes more all the same may take less.
    transaction = context.transaction
    transaction.set_setting("old", b"x" * 4096)
    repository_configure.function(context, ConfigureRequest({"old": b"x" * 4095}))
    with pytest.raises(LimitExceeded):
        repository_configure.function(context, ConfigureRequest({"old": b"x" * 4096}))


def test_settings_of_a_repository_that_is_made() -> None:
    transaction = Transaction("new", None)
    transaction.create(GIT, KINDS, {"a": b"1", "b": b"2"})
    transaction.set_setting("a", None)
    transaction.set_setting("c", b"3")
    assert transaction.settings == {"b": b"2", "c": b"3"}
