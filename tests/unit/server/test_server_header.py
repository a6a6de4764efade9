"""server.header, server.context: a request is understood whole before anything is done; each call has its verdict."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from builders import MAIN
from dialogs import Served, message

from smartserver.errors import (
    AccessDenied,
    Banned,
    BranchExists,
    LimitExceeded,
    NoSuchBranch,
    NoSuchRepository,
    Unsupported,
)
from smartserver.server import header as headers
from smartserver.server.access import invoking_user
from smartserver.server.context import RequestContext
from smartserver.server.header import (
    RequestFailure,
    UndeclaredError,
    check_header,
    declared,
)
from smartserver.server.site import Site
from smartserver.verbs.branch_create import BranchCreateRequest, branch_create
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import VERBS, AnyVerb, Arguments, Context, Permission, Result, verb
from smartserver.verbs.repository_delete import DeleteRequest, repository_delete
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.messages import PUSH_OPTIONS, Call, Request, RequestFlag, Status, raw
from transports.errors import NoSpace

PING: tuple[AnyVerb, Arguments] = (server_ping, PingRequest())
INSERT: tuple[AnyVerb, Arguments] = (repository_insert_pack, InsertPackRequest())
PULL: tuple[AnyVerb, Arguments] = (repository_pull, PullRequest())
VERIFY: tuple[AnyVerb, Arguments] = (repository_verify, VerifyRequest())


def refusal(request: Request) -> str:
    with pytest.raises(Unsupported) as caught:
        check_header(request)
    return str(caught.value)


def changed(request: Request, **fields: object) -> Request:
    return msgspec.structs.replace(request, **fields)


def with_arguments(arguments: bytes, name: str = "Server.ping") -> Request:
    return changed(message(PING), calls=[Call(name, msgspec.Raw(arguments))])


# -- check_header


def test_no_call_and_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "without calls" in refusal(message())
    monkeypatch.setattr(headers, "MAX_CALLS", 3)
    check_header(message(PING, PING, PING))
    with pytest.raises(LimitExceeded) as caught:
        check_header(message(PING, PING, PING, PING))
    assert (caught.value.value, caught.value.limit) == (4, 3)


def test_an_unknown_verb_is_named_and_the_known_ones_too() -> None:
    text = refusal(with_arguments(b"\x90", "Branch.levitate"))
    assert "'Branch.levitate'" in text
    assert "Server.ping" in text


@pytest.mark.parametrize(
    "arguments",
    [
        b"\x91\xc0",  # One field too many.
        b"\x80",  # A map.
        b"\xc0",
        b"\xc1",  # Never used in msgpack.
        b"\x91" * 3000,  # Nested beyond reason.
        b"\x91\xd4\x01\x00",  # A reference to an earlier result, which this release takes nowhere.
    ],
)
def test_arguments_that_are_none(arguments: bytes) -> None:
    assert "Server.ping" in refusal(with_arguments(arguments))


@pytest.mark.parametrize("arguments", [b"\x93\xa2\xff\xfe\x90\x80", b"\x93\xa3git\x91\x93\xa1\xc3\xa1x\xc3\x80"])
def test_text_that_is_not_utf8(arguments: bytes) -> None:
    assert "Repository.create" in refusal(with_arguments(arguments, "Repository.create"))


def test_a_bulk_stream_needs_a_body() -> None:
    assert "BULK" in refusal(changed(message(PING), flags=RequestFlag.BULK))


@pytest.mark.parametrize("flags", [64, 1 << 40, -1, -16])
def test_unknown_flags(flags: int) -> None:
    assert "flags" in refusal(changed(message(PING), flags=flags))


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


@pytest.mark.parametrize("size", [0, 15, 17, 1 << 20])
def test_a_request_id_has_16_bytes(size: int) -> None:
    assert f"{size} bytes" in refusal(message(PING, request=bytes(size)))


def test_an_age_is_not_negative() -> None:
    assert "-1" in refusal(message(PING, age=-1))


def test_bodies() -> None:
    assert "2 bodies up" in refusal(message(INSERT, INSERT, flags=RequestFlag.BODY))
    assert "2 down" in refusal(message(PULL, PULL))
    assert "a body down" in refusal(message(PULL, (branch_delete, BranchDeleteRequest(MAIN))))
    assert "BODY" in refusal(message(INSERT))
    assert "BODY" in refusal(message(PING, flags=RequestFlag.BODY))
    assert "minutes" in refusal(message(VERIFY, (branch_delete, BranchDeleteRequest(MAIN))))
    check_header(message(PULL, PING, VERIFY))
    assert "BODY" in refusal(message(PING, flags=RequestFlag.CHECK_ONLY | RequestFlag.BODY))
    check_header(message(INSERT, flags=RequestFlag.CHECK_ONLY))
    check_header(message(INSERT, flags=RequestFlag.CHECK_ONLY | RequestFlag.BODY))


# -- decide


def context(served: Served, request: Request) -> RequestContext:
    return RequestContext(Site(served.transport), invoking_user("tester"), check_header(request), lambda *_: None)


def set_ref(ref: bytes, tip: bytes, rule: Rule = Rule.FF, create: bool = True) -> tuple[AnyVerb, Arguments]:
    return branch_set_last_revision, SetLastRevisionRequest(ref, tip, rule, create)


def run(served: Served, *calls: tuple[AnyVerb, Arguments], flags: RequestFlag = RequestFlag.NONE) -> list[int]:
    made = context(served, message(*calls, flags=flags))
    return [outcome.status for outcome in made.decide(served.repository().begin())]


def test_later_calls_see_earlier_ones(served: Served, line: list[bytes]) -> None:
    calls = [
        (branch_create, BranchCreateRequest(b"refs/heads/one", line[1])),
        set_ref(b"refs/heads/one", line[2], create=False),
        (branch_delete, BranchDeleteRequest(b"refs/heads/one", line[2])),
        (branch_create, BranchCreateRequest(b"refs/heads/one", line[0])),
    ]
    assert run(served, *calls) == [Status.DONE] * 4


# -- errors


class ProbeRequest(Arguments, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing."""


class ProbeResult(Result, frozen=True, array_like=True):
    """Nothing."""


@pytest.fixture
def probe() -> Iterator[AnyVerb]:
    """A verb that raises what it does not declare."""

    @verb("Test.probe", errors=(NoSuchBranch,))
    def raise_it(context: Context, request: ProbeRequest) -> ProbeResult:
        """Raise."""
        raise BranchExists(b"ref", b"tip")

    yield raise_it
    del VERBS["Test.probe"]


def test_an_undeclared_error_is_a_bug(served: Served, probe: AnyVerb) -> None:
    with pytest.raises(UndeclaredError, match=r"Test\.probe raised BranchExists"):
        run(served, (probe, ProbeRequest()))


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


def test_one_verification_a_request() -> None:
    assert check_header(message(VERIFY)).long
    with pytest.raises(Unsupported, match=r"Repository\.verify as a second long call"):
        check_header(message(VERIFY, VERIFY, VERIFY))


def test_results_that_grow_without_end(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a few bytes may ask for an entry of 64 KiB: the sum of the answers has a limit."""
    monkeypatch.setattr("smartserver.server.context.MAX_RESULTS", 3)
    assert run(served, PING, PING, PING) == [Status.DONE] * 3
    with pytest.raises(RequestFailure) as caught:
        run(served, PING, PING, PING, PING)
    assert isinstance(caught.value.fault, LimitExceeded)


def test_what_must_be_alone_in_its_request() -> None:
    delete = (repository_delete, DeleteRequest())
    assert check_header(message(delete)).mutates
    for calls in ([delete, PING], [PING, delete], [delete, delete]):
        assert "Repository.delete in a request of 2 calls" in refusal(message(*calls))
