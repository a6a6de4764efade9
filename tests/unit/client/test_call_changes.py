"""client.call: a change is sent again as a repeat, and is made, not made, or said to be unknown."""

from __future__ import annotations

import msgspec
import pytest
from exchanges import DELETE, MAIN, banner, broken, upload
from scripted import Answering, ScriptedMedium, Server, done, fault_of, refuse, refused, reply

from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.request import NotOurProtocol, Outgoing, Refusal
from smartserver.client.retry import PAUSES
from smartserver.errors import AccessDenied, DivergedBranches, OutcomeUnknown, RepositoryChanged, ServerBusy
from smartserver.verbs.branch_delete import BranchDeleteResult
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import End, Error, Event, GoAway, Reply, Request
from smartserver.wire.frames import PREFACE
from smartserver.wire.messages import Outcome, RequestFlag, Status, decode_request, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage
from transports.errors import CodedError

CHANGED = refused(RepositoryChanged("packs/1"))


DELETED = done(BranchDeleteResult([]))


def refuse_times(times: int) -> Answering:
    """The repository changes meanwhile, so many times."""
    left = [times]

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request) and not event.body:
            left[0] -= 1
            medium.say(Error(event.id, CHANGED) if left[0] >= 0 else Reply(event.id, DELETED))
        elif isinstance(event, End):
            medium.say(Error(event.id, CHANGED))

    return answering


@pytest.mark.parametrize(
    "error", [ServerBusy("connections", 7), AccessDenied("write", "why"), DivergedBranches(MAIN, b"t" * 20)]
)
def test_a_repeat_that_is_refused_leaves_it_unknown(error: CodedError) -> None:
    """The first sending may be in progress still, and be carried out later."""
    server = Server([broken, refuse(refused(error))])
    with server.client() as client, pytest.raises(OutcomeUnknown) as raised:
        client.request(DELETE)
    assert raised.value.why == f"sent again, it was refused: {error}"
    assert server.tried == 2


def test_a_repeat_that_waits_in_vain_leaves_it_unknown() -> None:
    """The first sending may be in progress still."""
    server = Server([broken, refuse_times(9)])
    with server.client() as client, pytest.raises(OutcomeUnknown, match="packs/1 is gone"):
        client.request(DELETE)


def test_a_repeat_of_which_the_log_says_too_little_says_so() -> None:
    server = Server([broken, refuse(refused(OutcomeUnknown("the log is too short")))])
    with server.client() as client, pytest.raises(OutcomeUnknown) as raised:
        client.request(DELETE)
    assert raised.value.why == "the log is too short"


def test_a_repeat_that_is_done_in_part_leaves_the_rest_unknown() -> None:
    calls = [*DELETE.calls, *DELETE.calls]
    fault = fault_of(DivergedBranches(MAIN, b"t" * 20))
    outcomes = [Outcome(Status.DONE, raw(BranchDeleteResult([]))), Outcome(Status.REFUSED, fault=fault)]
    server = Server([broken, reply(encode(ReplyMessage(outcomes)))])
    with server.client() as client:
        made, unknown = client.request(Outgoing("project", calls)).results
    assert isinstance(made, BranchDeleteResult)
    assert isinstance(unknown, OutcomeUnknown)
    assert unknown.why.startswith("sent again, it was refused: ")


def test_a_refusal_is_certain_though_nobody_is_there_afterwards() -> None:
    def leaving(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Error(event.id, CHANGED), GoAway(b"the server is stopping"))

    server = Server([leaving])
    with server.client() as client, pytest.raises(CannotConnect):
        client.request(DELETE)
    assert server.tried == 2


def test_a_question_whether_a_change_could_be_made_is_a_read() -> None:
    server = Server([broken] * 3)
    with server.client() as client, pytest.raises(ConnectionLost):
        client.request(Outgoing("project", DELETE.calls, RequestFlag.CHECK_ONLY))


NO_RESULTS = [
    encode(ReplyMessage([Outcome(Status.DONE, msgspec.Raw(result))]))
    for result in (b"\xc0", b"\x91\xc0", b"\x90", b"\x91\x91\xa1a")
]


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (banner(PREFACE + bytes(40)), "frame type"),
        *[(reply(done(*[BranchDeleteResult([])] * count)), f"each of 1 calls, got {count}") for count in (0, 2)],
        (reply(b"\xc1"), "expected a reply, got 1 bytes that are none"),
        (refuse(b"\xc1"), "expected an error, got 1 bytes that are none"),
        *[(reply(each), r"expected a result of Branch\.delete") for each in NO_RESULTS],
    ],
)
def test_a_change_whose_answer_is_none_is_repeated_and_then_unknown(said: Answering, named: str) -> None:
    server = Server([said] * 3)
    with server.client() as client, pytest.raises(OutcomeUnknown, match=f"it is unknown whether.*{named}") as raised:
        client.request(DELETE)
    assert isinstance(raised.value.__cause__, RemoteProtocolError)
    assert server.ids == [DELETE.id] * 3
    assert server.pauses == list(PAUSES)
    assert [connection.closed for connection in server.connections] == [1, 1, 1]


@pytest.mark.parametrize("scripts", [[broken, reply(b"\xc1")], [reply(b"\xc1"), broken], [reply(b"\xc1")]])
def test_a_broken_rule_is_named_before_a_broken_connection(scripts: list[Answering]) -> None:
    server = Server(scripts)
    with server.client() as client, pytest.raises(OutcomeUnknown, match="expected a reply") as raised:
        client.request(DELETE)
    assert isinstance(raised.value.__cause__, RemoteProtocolError)
    assert server.tried == 3


def test_a_server_of_another_version_has_changed_nothing() -> None:
    server = Server([banner(b"hpss! 2 3\n")] * 3)
    with server.client() as client, pytest.raises(NotOurProtocol):
        client.request(DELETE)
    assert server.tried == 1


def test_who_speaks_something_else_may_have_a_server_behind_him() -> None:
    """The lines in front of an answer may not be the server's: the same change is asked for again."""
    server = Server([banner(b"SSH-2.0-OpenSSH_9.6\r\n"), reply(done(BranchDeleteResult([])))])
    with server.client() as client:
        client.request(DELETE)
    assert server.ids == [DELETE.id] * 2


@pytest.mark.parametrize(
    ("failing", "error"), [(KeyError("an object is gone"), OutcomeUnknown), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_body_that_fails_when_it_is_sent_again_leaves_it_unknown(
    failing: BaseException, error: type[BaseException]
) -> None:
    """An interrupt remains one."""
    whole = iter([[(b"abc", 1)]])

    def body() -> list[tuple[bytes, int]]:
        for pieces in whole:
            return pieces
        raise failing

    def dying(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, End):
            medium.break_off()

    server = Server([dying] * 3)
    with server.client() as client, pytest.raises(error) as raised:
        client.request(Outgoing("project", upload(1).calls, RequestFlag.BODY, body=body))
    assert [connection.closed for connection in server.connections] == [1, 1]
    if error is OutcomeUnknown:
        assert raised.value.__cause__ is failing
        for said in ("Connection reset by peer", "it could not be sent again: 'an object is gone'"):
            assert said in str(raised.value)


def test_what_may_succeed_a_moment_later_is_sent_again_as_a_repeat() -> None:
    server = Server([refuse_times(2)])
    server.client().request(DELETE)
    (connection,) = server.connections
    requests = [decode_request(event.payload) for event in connection.heard if isinstance(event, Request)]
    assert [request.id for request in requests] == [DELETE.id] * 3
    assert [request.age > 0 for request in requests] == [False, True, True]
    assert server.pauses == list(PAUSES)


def test_it_is_not_sent_for_ever() -> None:
    server = Server([refuse_times(9)])
    with pytest.raises(Refusal) as raised:
        server.client().request(DELETE)
    assert isinstance(raised.value.error, RepositoryChanged)
    assert raised.value.error.file == "packs/1"
    assert server.pauses == list(PAUSES)


def test_a_large_body_is_not_sent_again_unasked() -> None:
    server = Server([refuse_times(9)])
    flags = RequestFlag.BODY | RequestFlag.GRAPH_FIRST
    body = [(b"x" * 100, 1)]
    outgoing = Outgoing("project", [(repository_insert_pack, InsertPackRequest())], flags, body=lambda: body)
    with pytest.raises(Refusal):
        server.client().request(outgoing)
    assert server.pauses == []
