"""server.context, server.header: a path that leads below a repository names a branch in it."""

from __future__ import annotations

import msgspec
import pytest
from builders import GIT
from dialogs import CREATE, Dialog, Served, message, numbered
from session_calls import done, refused

from smartserver.errors import DivergedBranches
from smartserver.records.model import HERE
from smartserver.records.system import System
from smartserver.server.access import FixedAccess
from smartserver.vcs.git.system import GitSystem
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import AnyVerb, Arguments, Permission
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_open import OpenRequest, OpenResult, repository_open
from smartserver.verbs.rules import Rule
from smartserver.wire.messages import Failure, Reply, Request, RequestFlag

BELOW = RequestFlag.BELOW
OPEN = (repository_open, OpenRequest())
NEW = (repository_create, CREATE)
INSERT = (repository_insert_pack, InsertPackRequest())

Call = tuple[AnyVerb, Arguments]


def at(path: str, *calls: Call, flags: RequestFlag = BELOW, number: int = 1) -> Request:
    return message(*calls, path=path, flags=flags, request=numbered(number))


def here(tip: bytes, rule: Rule = Rule.FF) -> Call:
    return branch_set_last_revision, SetLastRevisionRequest(HERE, tip, rule)


def opened(answer: Reply | Failure, call: int = 0) -> OpenResult:
    return msgspec.msgpack.decode(done(answer).outcomes[call].result, type=OpenResult)


@pytest.fixture(autouse=True)
def any_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches with names as Breezy's have, in the repository of the samples."""
    monkeypatch.setattr(GitSystem, "ref_problem", System.ref_problem)


@pytest.fixture
def dialog(served: Served, line: list[bytes]) -> Dialog:
    """There are the branches `trunk` and `team/fix`, and one at the repository's own path."""
    served.push([], {b"trunk": line[1], b"team/fix": line[2], b"team/fix/deeper": line[3]})
    return Dialog(served.site)


@pytest.mark.parametrize(
    ("rest", "branch", "inner"),
    [
        ("trunk", b"trunk", ""),
        ("trunk/", b"trunk", ""),
        ("trunk/src/.a/log", b"trunk", "src/.a/log"),
        ("team/fix", b"team/fix", ""),
        ("team/fix/deep", b"team/fix", "deep"),
        ("team/fix/deeper/a", b"team/fix/deeper", "a"),
        ("team", b"team", ""),
        ("trunk2", b"trunk2", ""),
        ("", HERE, ""),
    ],
)
def test_a_read_finds_the_branch_and_the_path_in_it(dialog: Dialog, rest: str, branch: bytes, inner: str) -> None:
    path = f"project/{rest}"
    answer = opened(dialog.ask(at(path, OPEN)))
    assert answer == OpenResult("project", path.strip("/").removeprefix("project").lstrip("/"), GIT, branch, inner)


@pytest.mark.parametrize(
    ("rest", "branch", "inner"), [("", HERE, ""), ("src/a", HERE, "src/a"), ("trunk/a", b"trunk", "a")]
)
def test_the_branch_at_the_repository_itself_has_all_other_paths_in_it(
    dialog: Dialog, served: Served, line: list[bytes], rest: str, branch: bytes, inner: str
) -> None:
    served.push([], {HERE: line[0]})
    answer = opened(dialog.ask(at(f"project/{rest}", OPEN)))
    assert (answer.branch, answer.inner) == (branch, inner)


def test_without_the_flag_it_is_an_ordinary_name(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    nothing = RequestFlag.NONE
    assert opened(dialog.ask(at("project/trunk/a", OPEN, flags=nothing))) == OpenResult("project", "trunk/a", GIT)
    assert refused(dialog.ask(at("project/trunk", here(line[2]), flags=nothing))).code == "nested-repository"
    done(dialog.ask(at("project", here(line[2]), flags=nothing)))
    assert served.refs()[HERE] == line[2]


def test_errors_and_permissions_have_the_name(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    error = refused(dialog.ask(at("project/trunk", here(line[0]))))
    assert isinstance(error, DivergedBranches)
    assert error.ref == b"trunk"
    noted: list[tuple[Permission, bytes]] = []

    class Noted(FixedAccess):
        def require(self, permission: Permission, path: str, ref: bytes = b"") -> None:
            noted.append((permission, ref))

    done(Dialog(served.site, Noted("joe", frozenset(), "")).ask(at("project/trunk", here(line[0], Rule.FORCE))))
    assert (Permission.FORCE, b"trunk") in noted


@pytest.mark.parametrize("body", [False, True])
def test_a_repeat_makes_nothing_where_the_repository_was_deleted(
    dialog: Dialog, served: Served, line: list[bytes], body: bool
) -> None:
    sent = served.history.body(line[4:5]) if body else b""
    calls = [NEW, INSERT, here(line[4])] if body else [NEW, here(line[2])]
    request = at("project/trunk", *calls, flags=BELOW | RequestFlag.BODY if body else BELOW, number=7)
    first = done(dialog.ask(request, sent, int(body)))
    served.repository().delete(numbered(90), 0, "somebody")
    again = done(dialog.ask(msgspec.structs.replace(request, age=500), sent, int(body)))
    assert (again.outcomes, again.state) == (first.outcomes, None)
    assert not served.site.find_below("project/trunk").exists
    if not body:  # Another request is one of its own.
        done(dialog.ask(at("other/trunk", NEW, number=8)))
