"""verbs.repository_list, verbs.repository_stats, verbs.repository_pack, verbs.repository_delete,
verbs.repository_configure: for who looks after repositories."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN, SETTINGS, request_id
from verb_context import LISTED, NotedContext, Project

from smartserver.errors import AccessDenied, LimitExceeded, NoSuchRepository
from smartserver.store.format import FAMILY, VERSION
from smartserver.store.transaction import Transaction
from smartserver.verbs.declare import Permission
from smartserver.verbs.repository_configure import MAX_SETTINGS_BYTES, ConfigureRequest, repository_configure
from smartserver.verbs.repository_delete import DeleteRequest, repository_delete
from smartserver.verbs.repository_list import ListRequest, RepositoryField, repository_list
from smartserver.verbs.repository_pack import PackRequest, PackResult, repository_pack
from smartserver.verbs.repository_stats import StatsRequest, repository_stats


@pytest.fixture
def project() -> Project:
    project = Project()
    line = project.history.line(3)
    project.push(line[:2], {MAIN: line[1]})
    project.push(line[2:], {}, lambda transaction: transaction.set_map("tags", "ids", b"v1", line[0]))
    return project


def nowhere() -> NotedContext:
    return NotedContext(Transaction("project", None))


def test_a_listing_in_parts(project: Project) -> None:
    context = project.context()
    whole = repository_list.function(context, ListRequest())
    assert whole.repositories == [RepositoryField("a", GIT, 1), RepositoryField("b", "", 0, problem="damaged")]
    assert not whole.more
    first = repository_list.function(context, ListRequest("x", 1, refs=True))
    assert (first.repositories, first.more) == ([RepositoryField("a", GIT, 1, [MAIN])], True)
    assert context.listed == [("", 1000), ("x", 1)]
    assert len(LISTED) == 2


def test_what_a_repository_consists_of(project: Project) -> None:
    found = repository_stats.function(project.context(), StatsRequest())
    packs = project.repository.snapshot().state.packs
    assert (found.format, found.features, found.vcs, found.version) == (f"{FAMILY} {VERSION}", [], GIT, 3)
    assert (found.refs, found.entries, found.revisions, found.packs) == (1, 1, 3, 2)
    assert found.records == sum(pack.records for pack in packs) >= 9
    assert found.largest == max(pack.length for pack in packs)
    assert found.size == sum(pack.length + pack.index_length for pack in packs)
    with pytest.raises(NoSuchRepository):
        repository_stats.function(nowhere(), StatsRequest())
    empty = Project()
    empty.push([])
    assert repository_stats.function(empty.context(), StatsRequest()).largest == 0


def test_packing_needs_the_permission_to_write(project: Project) -> None:
    assert repository_pack.function(project.context(), PackRequest()) == PackResult(5, 1, 1000)
    with pytest.raises(AccessDenied):
        repository_pack.function(project.context(denied=[Permission.WRITE]), PackRequest())


def test_deletion_needs_its_permission(project: Project) -> None:
    context = project.context()
    repository_delete.function(context, DeleteRequest())
    assert (context.asked, context.transaction.deleted) == ([(Permission.DELETE, b"")], True)
    denied = project.context(denied=[Permission.DELETE])
    with pytest.raises(AccessDenied):
        repository_delete.function(denied, DeleteRequest())
    assert not denied.transaction.deleted
    with pytest.raises(NoSuchRepository):
        repository_delete.function(nowhere(), DeleteRequest())


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
    with pytest.raises(LimitExceeded, match="bytes of a repository's settings: 16385, expected no more than 16384"):
        repository_configure.function(context, ConfigureRequest({**values, "s3": b"x" * (rest + 1)}))
    assert context.transaction.setting_changes == {}
    repository_configure.function(context, ConfigureRequest({**values, "s3": b"x" * rest}))
    # What takes more all the same may take less.
    transaction = context.transaction
    transaction.set_setting("old", b"x" * 4096)
    repository_configure.function(context, ConfigureRequest({"old": b"x" * 4095}))
    with pytest.raises(LimitExceeded):
        repository_configure.function(context, ConfigureRequest({"old": b"x" * 4096}))


def test_settings_of_a_repository_that_is_made_and_of_one_that_is_stored(project: Project) -> None:
    transaction = Transaction("new", None)
    transaction.create(GIT, KINDS, {"a": b"1", "b": b"2"})
    transaction.set_setting("a", None)
    transaction.set_setting("c", b"3")
    assert transaction.settings == {"b": b"2", "c": b"3"}

    def plan(transaction: Transaction) -> bytes:
        transaction.set_setting("HEAD", None)
        transaction.set_setting("a", b"1")
        return b""

    before = project.repository.snapshot().state.changes_since(None).version
    assert project.repository.commit(request_id(), 0, "user", plan).changed
    assert dict(project.context().transaction.settings) == {"a": b"1"}
    changes = project.repository.snapshot().state.changes_since(None)
    assert (changes.settings, changes.vcs, changes.version) == ({"a": b"1"}, GIT, before + 1)
    assert not project.repository.commit(request_id(), 0, "user", plan).changed
