"""server.header, server.context: a request is understood whole before anything is done, and what its path names."""

from __future__ import annotations

import msgspec
import pytest
from builders import GIT, MAIN
from calls import raising
from dialogs import CREATE, Dialog, Served, message, numbered
from session_calls import BODY, INSERT, PING, PULL, done, refused

from smartserver.errors import (
    AccessDenied,
    Banned,
    BranchExists,
    DivergedBranches,
    LimitExceeded,
    NoSuchBranch,
    NoSuchRepository,
    Unsupported,
)
from smartserver.records.model import HERE
from smartserver.records.system import System
from smartserver.server import header as headers
from smartserver.server.access import FixedAccess, invoking_user
from smartserver.server.context import RequestContext
from smartserver.server.header import RequestFailure, UndeclaredError, check_header, declared
from smartserver.server.site import Site
from smartserver.vcs.git.system import GitSystem
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import VERBS, AnyVerb, Arguments, Permission
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_delete import DeleteRequest, repository_delete
from smartserver.verbs.repository_open import OpenRequest, OpenResult, repository_open
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_ping import server_ping
from smartserver.wire.messages import PUSH_OPTIONS, Call, Failure, Reply, Request, RequestFlag, Status, raw
from transports.errors import NoSpace

VERIFY: tuple[AnyVerb, Arguments] = (repository_verify, VerifyRequest())
DELETE: tuple[AnyVerb, Arguments] = (repository_delete, DeleteRequest())
CHECK = RequestFlag.CHECK_ONLY


def refusal(request: Request) -> str:
    with pytest.raises(Unsupported) as caught:
        check_header(request)
    return str(caught.value)


def changed(request: Request, **fields: object) -> Request:
    return msgspec.structs.replace(request, **fields)


def with_arguments(arguments: bytes, name: str = "Server.ping") -> Request:
    return changed(message(PING), calls=[Call(name, msgspec.Raw(arguments))])


# -- check_header


NO_ARGUMENTS = [
    b"\x91\xc0",  # One field too many.
    b"\x80",  # A map.
    b"\xc0",
    b"\xc1",  # Never used in msgpack.
    b"\x91" * 3000,  # Nested beyond reason.
    b"\x91\xd4\x01\x00",  # A reference to an earlier result, which this release takes nowhere.
]

NO_UTF_8 = [b"\x93\xa2\xff\xfe\x90\x80", b"\x93\xa3git\x91\x93\xa1\xc3\xa1x\xc3\x80"]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (message(), "without calls"),
        (with_arguments(b"\x90", "Branch.levitate"), "'Branch.levitate'"),
        (with_arguments(b"\x90", "Branch.levitate"), "update the client or the server"),
        *[(with_arguments(each), "Server.ping") for each in NO_ARGUMENTS],
        *[(with_arguments(each, "Repository.create"), "Repository.create") for each in NO_UTF_8],
        (message(PING, flags=RequestFlag.BULK), "BULK"),
        *[(changed(message(PING), flags=flags), "flags") for flags in (64, 1 << 40, -1, -16)],
        *[(message(PING, request=bytes(size)), f"{size} bytes") for size in (0, 15, 17, 1 << 20)],
        (message(PING, age=-1), "-1"),
        (message(INSERT, INSERT, flags=BODY), "2 bodies up"),
        (message(PULL, PULL), "2 down"),
        (message(PULL, (branch_delete, BranchDeleteRequest(MAIN))), "a body down"),
        (message(INSERT), "BODY"),
        (message(PING, flags=BODY), "BODY"),
        (message(PING, flags=CHECK | BODY), "BODY"),
        (message(VERIFY, (branch_delete, BranchDeleteRequest(MAIN))), "minutes"),
        (message(VERIFY, VERIFY, VERIFY), "Repository.verify as a second long call"),
        *[
            (message(*calls), "Repository.delete in a request of 2 calls")
            for calls in ([DELETE, PING], [PING, DELETE], [DELETE, DELETE])
        ],
    ],
)
def test_what_is_refused(request_: Request, why: str) -> None:
    assert why in refusal(request_)


def test_what_is_not() -> None:
    check_header(message(PULL, PING, VERIFY))
    check_header(message(INSERT, flags=CHECK))
    check_header(message(INSERT, flags=CHECK | BODY))
    assert check_header(message(VERIFY)).long
    assert check_header(message(DELETE)).mutates


def test_too_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "MAX_CALLS", 3)
    check_header(message(PING, PING, PING))
    with pytest.raises(LimitExceeded) as caught:
        check_header(message(PING, PING, PING, PING))
    assert (caught.value.value, caught.value.limit) == (4, 3)


def test_extras_that_must_be_obeyed() -> None:
    extras = {"agent": msgspec.Raw(b"\xa1x"), "!must": msgspec.Raw(b"\xc0")}
    assert "'!must'" in refusal(changed(message(PING), extras=extras))
    del extras["!must"]
    check_header(changed(message(PING), extras=extras))


def test_push_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(options: object) -> Request:
        return changed(message(PING), extras={PUSH_OPTIONS: raw(options)})

    assert check_header(message(PING)).push_options == ()
    assert check_header(asked(["one", "zwö"])).push_options == ("one", "zwö")
    for wrong in ("one", [1], [b"one"], {"one": "two"}):
        assert "these push options" in refusal(asked(wrong))
    monkeypatch.setattr(headers, "MAX_PUSH_OPTIONS", 9)
    with pytest.raises(LimitExceeded, match="too many bytes of push options: 10, at most 9 are allowed"):
        check_header(asked(["12345678"]))


# -- decide


def context(served: Served, request: Request) -> RequestContext:
    return RequestContext(Site(served.transport), invoking_user("tester"), check_header(request), lambda *_: None)


def run(served: Served, *calls: tuple[AnyVerb, Arguments], flags: RequestFlag = RequestFlag.NONE) -> list[int]:
    made = context(served, message(*calls, flags=flags))
    return [outcome.status for outcome in made.decide(served.repository().begin())]


# -- errors


def test_an_undeclared_error_is_a_bug(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = msgspec.structs.replace(server_ping, function=raising(BranchExists(b"ref", b"tip")))
    monkeypatch.setitem(VERBS, server_ping.name, wrong)
    with pytest.raises(UndeclaredError, match=r"Server\.ping raised BranchExists"):
        run(served, PING)


def test_what_any_verb_may_raise() -> None:
    for error in (AccessDenied("x", "y"), Banned("get", "vfs:get"), NoSuchRepository("p"), NoSpace("packs/x")):
        assert declared(server_ping, error) is error
    with pytest.raises(UndeclaredError):
        declared(server_ping, NoSuchBranch(b"x"))


# -- what a verb is given


def test_the_served_folder_itself_is_no_place_for_a_new_one(served: Served) -> None:
    made = context(served, message(PING, path=""))
    made.transaction = served.repository("").begin()
    with pytest.raises(AccessDenied, match="give it a name below"):
        made.require(Permission.CREATE)
    made.require(Permission.CREATE, b"refs/heads/x")


def test_results_that_grow_without_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a few bytes may ask for an entry of 64 KiB: the sum of the answers has a limit."""
    monkeypatch.setattr("smartserver.server.context.MAX_RESULTS", 3)
    assert run(served, PING, PING, PING) == [Status.DONE] * 3
    with pytest.raises(RequestFailure) as caught:
        run(served, PING, PING, PING, PING)
    assert isinstance(caught.value.fault, LimitExceeded)


BELOW = RequestFlag.BELOW
OPEN = (repository_open, OpenRequest())
NEW = (repository_create, CREATE)

VerbCall = tuple[AnyVerb, Arguments]


def at(path: str, *calls: VerbCall, flags: RequestFlag = BELOW, number: int = 1) -> Request:
    return message(*calls, path=path, flags=flags, request=numbered(number))


def here(tip: bytes, rule: Rule = Rule.FF) -> VerbCall:
    return branch_set_last_revision, SetLastRevisionRequest(HERE, tip, rule)


def opened(answer: Reply | Failure, call: int = 0) -> OpenResult:
    return msgspec.msgpack.decode(done(answer).outcomes[call].result, type=OpenResult)


@pytest.fixture
def dialog(served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Dialog:
    """There are the branches `trunk` and `team/fix`, with names as Breezy's have, and one at the repository's path."""
    monkeypatch.setattr(GitSystem, "ref_problem", System.ref_problem)
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
