"""verbs.repository_create, repository_configure: what a repository is, its settings, and how many there may be.

verbs.branch_create, branch_delete; which moves of a ref are refused is in `test_rules`."""

from __future__ import annotations

import msgspec
import pytest
from builders import GIT, KINDS, MAIN, SETTINGS
from verb_context import NotedContext, Project

from smartserver.errors import HeadBranch, InvalidName, LimitExceeded, RepositoryExists, StaleLease, WrongVcs
from smartserver.records.model import Tip
from smartserver.store.transaction import Transaction
from smartserver.verbs.branch_create import BranchCreateRequest, branch_create
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.declare import Permission
from smartserver.verbs.repository_configure import MAX_SETTINGS_BYTES, ConfigureRequest, repository_configure
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create

FIELDS = [KindField(kind.name, kind.check, kind.base) for kind in KINDS]
REQUEST = CreateRequest(GIT, FIELDS, SETTINGS)


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
