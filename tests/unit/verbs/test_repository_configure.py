"""verbs.repository_configure: settings, and how many there may be."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN, SETTINGS
from verb_context import Project

from smartserver.errors import LimitExceeded
from smartserver.store.transaction import Transaction
from smartserver.verbs.repository_configure import MAX_SETTINGS_BYTES, ConfigureRequest, repository_configure


@pytest.fixture
def project() -> Project:
    project = Project()
    line = project.history.line(3)
    project.push(line[:2], {MAIN: line[1]})
    project.push(line[2:], {}, lambda transaction: transaction.set_map("tags", "ids", b"v1", line[0]))
    return project


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
