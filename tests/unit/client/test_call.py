"""client.call: what the client makes of every way a server may answer, break off or stay silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from exchanges import DELETE, MAIN, PONG, READ, banner, broken, closed, silent, upload
from scripted import Answering, ScriptedMedium, Server, done, fault_of, refuse, refused, reply

import smartserver.client.call as calls
from smartserver.client.call import Client, NotOurProtocol, Outgoing, Refusal
from smartserver.client.certainty import NoServer
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.retry import PAUSES
from smartserver.errors import (
    AccessDenied,
    DivergedBranches,
    LimitExceeded,
    NotDone,
    OutcomeUnknown,
    RequestRefused,
    ServerBusy,
    UnknownRemoteError,
)
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.server_info import InfoRequest, InfoResult, server_info
from smartserver.verbs.server_ping import PingRequest, PingResult, server_ping
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import (
    Body,
    End,
    Error,
    Event,
    GoAway,
    Ping,
    Pong,
    Progress,
    Reply,
    Request,
)
from smartserver.wire.frames import PREFACE
from smartserver.wire.limits import IDLE_TIMEOUT, PING_INTERVAL
from smartserver.wire.messages import Known, Outcome, RequestFlag, Status, decode_request, encode
from smartserver.wire.messages import Progress as ProgressMessage
from smartserver.wire.messages import Reply as ReplyMessage
from transports.errors import CodedError, Locked, NoSpace


def test_a_call_gives_its_result() -> None:
    server = Server([reply(done(InfoResult("1.2", ["Server.info"])))])
    with server.client() as client:
        facts = client.call(server_info, InfoRequest())
        assert (facts.version, facts.capabilities) == ("1.2", ["Server.info"])
    assert server.connections[0].closed == 1


def test_nothing_is_connected_before_it_is_needed() -> None:
    server = Server([])
    with server.client():
        pass
    assert server.tried == 0


def test_a_second_request_goes_over_the_same_connection() -> None:
    server = Server([reply(PONG)])
    with server.client() as client:
        client.call(server_ping, PingRequest())
        client.call(server_ping, PingRequest())
    (connection,) = server.connections
    assert [event.id for event in connection.heard if isinstance(event, Request)] == [1, 2]


def test_the_request_says_what_was_asked_and_who_asks() -> None:
    server = Server([reply(done(BranchDeleteResult([])))])
    known = Known(b"i" * 16, 7)
    with server.client() as client:
        client.request(DELETE)
        first = server.connections[0].request
        client.request(Outgoing("other", DELETE.calls, RequestFlag.ATOMIC, known))
        second = server.connections[0].request
    assert (first.path, first.id, first.age, first.flags, first.known) == ("project", DELETE.id, 0, 0, None)
    assert [call.verb for call in first.calls] == ["Branch.delete"]
    assert first.extras == {"agent": msgspec.Raw(msgspec.msgpack.encode("a test"))}
    assert (second.path, second.flags, second.known, second.extras) == ("other", int(RequestFlag.ATOMIC), known, {})
    assert first.id != second.id


def test_defaults_at_the_end_of_arguments_are_not_sent() -> None:
    server = Server([reply(done(BranchDeleteResult([])))])
    with server.client() as client:
        client.request(DELETE)
        short = msgspec.msgpack.decode(server.connections[0].request.calls[0].arguments)
        client.request(Outgoing("project", [(branch_delete, BranchDeleteRequest(MAIN, b"t" * 20))]))
        long = msgspec.msgpack.decode(server.connections[0].request.calls[0].arguments)
    assert short == [MAIN]
    assert long == [MAIN, b"t" * 20]


def test_each_call_has_its_result_or_its_error() -> None:
    error = DivergedBranches(MAIN, b"t" * 20)
    outcomes = [
        Outcome(Status.DONE, msgspec.Raw(msgspec.msgpack.encode(BranchDeleteResult([b"o" * 20])))),
        Outcome(Status.REFUSED, fault=fault_of(error)),
        Outcome(Status.NOT_DONE, fault=fault_of(NotDone())),
        Outcome(Status.REFUSED),
    ]
    server = Server([reply(encode(ReplyMessage(outcomes)))])
    with server.client() as client:
        answer = client.request(Outgoing("project", list(DELETE.calls) * 4))
    deleted, diverged, undone, unexplained = answer.results
    assert isinstance(deleted, BranchDeleteResult)
    assert deleted.old == [b"o" * 20]
    assert isinstance(diverged, DivergedBranches)
    assert diverged.tip == b"t" * 20
    assert isinstance(undone, NotDone)
    assert isinstance(unexplained, UnknownRemoteError)
    assert "status 1" in str(unexplained)


def test_a_refused_call_raises_its_error() -> None:
    error = DivergedBranches(MAIN, b"t" * 20)
    outcome = Outcome(Status.REFUSED, fault=fault_of(error))
    server = Server([reply(encode(ReplyMessage([outcome])))])
    with server.client() as client, pytest.raises(DivergedBranches):
        client.call(branch_delete, BranchDeleteRequest(MAIN), "project")


def test_a_refused_request_raises_its_error_and_the_connection_goes_on() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            payload = refused(RequestRefused(), DivergedBranches(MAIN, b"t" * 20), None)
            medium.say(Error(event.id, payload) if event.id == 1 else Reply(event.id, PONG))

    server = Server([answering])
    with server.client() as client:
        with pytest.raises(Refusal, match="refused; nothing changed") as caught:
            client.request(Outgoing("project", list(DELETE.calls) * 2))
        client.call(server_ping, PingRequest())
    assert isinstance(caught.value.error, RequestRefused)
    assert isinstance(caught.value.outcomes[0], DivergedBranches)
    assert caught.value.outcomes[1] is None
    assert (server.tried, server.pauses) == (1, [])


def test_call_raises_the_error_of_the_request() -> None:
    server = Server([refuse(refused(LimitExceeded("calls", 3, 2)))])
    with server.client() as client, pytest.raises(LimitExceeded, match="calls: 3, expected no more than 2"):
        client.call(server_ping, PingRequest())


@pytest.mark.parametrize("result", [b"\xc0", b"\x91\xa1a"])
def test_a_result_that_is_none_is_the_peers_fault(result: bytes) -> None:
    payload = encode(ReplyMessage([Outcome(Status.DONE, msgspec.Raw(result))]))
    server = Server([reply(payload)] * 2)
    with server.client() as client, pytest.raises(RemoteProtocolError, match=r"expected a result of Server\.info"):
        client.call(server_info, InfoRequest())
    assert (server.tried, server.connections[0].closed) == (1, 1)


@pytest.mark.parametrize("count", [0, 2])
def test_an_outcome_for_each_call_or_none_counts(count: int) -> None:
    server = Server([reply(done(*[PingResult()] * count))])
    with server.client() as client, pytest.raises(RemoteProtocolError, match=f"each of 1 calls, got {count}"):
        client.call(server_ping, PingRequest())
    assert server.tried == 1


def test_a_long_reply_is_joined() -> None:
    names = [f"Verb.number{number}" for number in range(60_000)]
    server = Server([reply(done(InfoResult("1", names)))])
    with server.client() as client:
        assert client.call(server_info, InfoRequest()).capabilities == names


def test_a_reply_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_MESSAGE", 1000)
    server = Server([reply(done(InfoResult("v" * 1000, [])))])
    with server.client() as client, pytest.raises(RemoteProtocolError, match="a reply of no more than 1000 bytes"):
        client.call(server_info, InfoRequest())
    assert server.connections[0].closed


def test_progress_is_told() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Progress(event.id, encode(ProgressMessage("verify", 3, 7))), Reply(event.id, PONG))

    told: list[tuple[str, int, int]] = []
    server = Server([answering, answering])
    with server.client(progress=lambda *each: told.append(each)) as client:
        client.call(server_ping, PingRequest())
    with server.client() as client:
        client.call(server_ping, PingRequest())
    assert told == [("verify", 3, 7)]


# -- servers that speak something else


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        PREFACE + bytes(40),
    ],
    ids=["http", "ssh", "tls", "garbage"],
)
def test_another_protocol_is_named_and_not_tried_again(said: bytes) -> None:
    server = Server([banner(said)] * 3)
    with server.client() as client, pytest.raises(RemoteProtocolError) as caught:
        client.request(READ)
    assert "expected" in str(caught.value)
    assert (server.tried, server.pauses) == (1, [])
    assert server.connections[0].closed


def test_a_server_of_another_version_says_which() -> None:
    server = Server([banner(b"hpss! 2 3\n")] * 3)
    with (
        server.client() as client,
        pytest.raises(NotOurProtocol, match="speaks hpss version 2, 3, this client version 1"),
    ):
        client.request(READ)
    assert server.tried == 1
    assert server.connections[0].closed


# -- broken connections


@pytest.mark.parametrize("how", [broken, closed])
def test_a_lost_request_is_sent_again_with_its_id(how: Answering) -> None:
    server = Server([how, how, reply(done(BranchDeleteResult([])))])
    with server.client() as client:
        client.request(DELETE)
    assert server.ids == [DELETE.id] * 3
    assert server.pauses == list(PAUSES)
    assert [connection.closed for connection in server.connections] == [1, 1, 1]


def test_a_repeat_tells_how_old_it_is() -> None:
    server = Server([broken, reply(done(BranchDeleteResult([])))])

    def sleep(seconds: float) -> None:
        server.now += seconds

    with Client(server.connect, clock=lambda: server.now, sleep=sleep) as client:
        client.request(DELETE)
    assert [connection.request.age for connection in server.connections] == [0, int(PAUSES[0] * 1000)]


@pytest.mark.parametrize("how", [broken, closed])
def test_a_change_that_was_sent_and_never_answered_is_unknown(how: Answering) -> None:
    server = Server([how] * 3)
    with server.client() as client, pytest.raises(OutcomeUnknown, match="it is unknown whether the change was made"):
        client.request(DELETE)
    assert server.tried == 3


def test_it_is_unknown_too_when_the_server_is_gone_afterwards() -> None:
    server = Server([broken])
    with server.client() as client, pytest.raises(OutcomeUnknown, match="Connection reset by peer"):
        client.request(DELETE)
    assert server.tried == 3
    assert server.pauses == list(PAUSES)


@pytest.mark.parametrize("error", [ServerBusy("connections", 7), AccessDenied("write", "why"), NoSpace("p")])
def test_a_repeat_refused_before_the_log_was_read_leaves_it_unknown(error: CodedError) -> None:
    server = Server([broken, refuse(refused(error))])
    with server.client() as client, pytest.raises(OutcomeUnknown) as raised:
        client.request(DELETE)
    assert raised.value.why == str(error)
    assert server.tried == 2


def test_a_repeat_that_waits_in_vain_leaves_it_unknown() -> None:
    """The first sending may be in line for the same lock."""
    server = Server([broken, refuse_times(9)])
    with server.client() as client, pytest.raises(OutcomeUnknown, match="held by another writer"):
        client.request(DELETE)


@pytest.mark.parametrize("error", [DivergedBranches(MAIN, b"t" * 20), OutcomeUnknown("the log is too short")])
def test_a_repeat_refused_for_its_change_is_answered(error: CodedError) -> None:
    server = Server([broken, refuse(refused(error))])
    with server.client() as client, pytest.raises(Refusal) as raised:
        client.request(DELETE)
    assert type(raised.value.error) is type(error)


def test_a_refusal_is_certain_though_nobody_is_there_afterwards() -> None:
    def leaving(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Error(event.id, LOCKED), GoAway(b"the server is stopping"))

    server = Server([leaving])
    with server.client() as client, pytest.raises(CannotConnect):
        client.request(DELETE)
    assert server.tried == 2


def test_a_read_that_is_never_answered_is_lost() -> None:
    server = Server([broken] * 3)
    with server.client() as client, pytest.raises(ConnectionLost, match="Connection reset by peer"):
        client.request(READ)
    assert server.tried == 3


BUSY = "it may be too busy, or no hpss server"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (closed, f"the server closed the connection before it said anything: {BUSY}"),
        (broken, f"the server closed the connection before it said anything (Connection reset by peer): {BUSY}"),
    ],
)
def test_a_server_that_closes_without_a_word_may_be_too_busy(how: Answering, said: str) -> None:
    server = Server([how] * 3)
    with server.client() as client, pytest.raises(ConnectionLost) as lost:
        client.request(READ)
    assert str(lost.value) == said


def test_so_may_one_that_has_closed_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(medium: ScriptedMedium, sent: memoryview) -> int:
        raise ConnectionLost("Broken pipe")

    monkeypatch.setattr(ScriptedMedium, "write_some", refuses)
    with Server([closed] * 3).client() as client, pytest.raises(ConnectionLost) as lost:
        client.request(READ)
    assert str(lost.value) == f"the server closed the connection before it said anything (Broken pipe): {BUSY}"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (ScriptedMedium.end, "the server closed the connection before its answer"),
        (ScriptedMedium.break_off, "Connection reset by peer"),
    ],
)
def test_one_that_said_something_is_not(how: Callable[[ScriptedMedium], None], said: str) -> None:
    def greets(medium: ScriptedMedium, event: Event) -> None:
        medium.say(Ping())
        how(medium)

    with Server([greets] * 3).client() as client, pytest.raises(ConnectionLost) as lost:
        client.request(READ)
    assert str(lost.value) == said


def test_a_question_whether_a_change_could_be_made_is_a_read() -> None:
    server = Server([broken] * 3)
    with server.client() as client, pytest.raises(ConnectionLost):
        client.request(Outgoing("project", DELETE.calls, RequestFlag.CHECK_ONLY))


def test_a_push_cut_off_before_its_end_was_not_made() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Body):
            medium.break_off()

    server = Server([answering] * 3)
    with server.client() as client, pytest.raises(ConnectionLost):
        client.request(upload(10))
    assert server.tried == 3


def test_a_push_whose_end_was_sent_may_have_been_made() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, End):
            medium.end()

    server = Server([answering])
    with server.client() as client, pytest.raises(OutcomeUnknown):
        client.request(upload(10))


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


def test_the_repetition_of_a_change_whose_answer_was_none_is_answered() -> None:
    server = Server([reply(b"\xc1"), reply(done(BranchDeleteResult([])))])
    with server.client() as client:
        client.request(DELETE)
    assert server.ids == [DELETE.id] * 2


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
    """What he says may have been put in front of an answer: the same change is asked for again."""
    server = Server([banner(b"SSH-2.0-OpenSSH_9.6\r\n"), reply(done(BranchDeleteResult([])))])
    with server.client() as client:
        client.request(DELETE)
    assert server.ids == [DELETE.id] * 2


def test_a_change_that_only_somebody_else_got_is_said_to_have_found_no_server() -> None:
    server = Server([banner(b"SSH-2.0-OpenSSH_9.6\r\n")] * 3)
    with (
        server.client() as client,
        pytest.raises(NoServer, match=r"does not speak hpss: .*SSH.*; if an hpss server got"),
    ):
        client.request(DELETE)
    assert server.pauses == list(PAUSES)


def test_but_who_was_there_before_him_may_have_made_it() -> None:
    for said, tried in ((b"SSH-2.0-OpenSSH_9.6\r\n", 3), (b"hpss! 2 3\n", 2)):
        server = Server([broken, banner(said), banner(said)])
        with server.client() as client, pytest.raises(OutcomeUnknown, match="hpss") as raised:
            client.request(DELETE)
        assert type(raised.value) is OutcomeUnknown
        assert server.tried == tried


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


def test_a_broken_rule_before_all_was_sent_is_told_as_it_is() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.raw(PREFACE + bytes(40))

    server = Server([answering] * 3)
    with server.client() as client, pytest.raises(RemoteProtocolError):
        client.request(upload(10))
    assert server.tried == 1


def test_nobody_there_is_not_tried_again() -> None:
    server = Server([])
    with server.client() as client, pytest.raises(CannotConnect, match="Connection refused"):
        client.request(DELETE)
    assert (server.tried, server.pauses) == (1, [])


def test_a_bug_here_closes_the_connection() -> None:
    def body() -> Iterator[tuple[bytes, int]]:
        yield b"abc", 1
        raise KeyError("local")

    server = Server([silent])
    with server.client() as client, pytest.raises(KeyError):
        client.request(Outgoing("project", upload(1).calls, RequestFlag.BODY, body=body))
    assert server.connections == [] or server.connections[0].closed


def test_going_away_is_heeded_by_the_next_request() -> None:
    def leaving(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(GoAway(b"restarting"), Reply(event.id, PONG))

    server = Server([leaving, reply(PONG)])
    with server.client() as client:
        client.request(READ)
        client.request(READ)
    assert [connection.closed for connection in server.connections] == [1, 1]


@pytest.mark.parametrize("sent_all", [True, False])
def test_the_reason_of_a_server_that_goes_away_without_an_answer_is_told(sent_all: bool) -> None:
    def leaving(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request if sent_all else Body) and not medium.has_refused:
            medium.has_refused = True
            medium.say(GoAway(b"nothing came for 9 s"))
            medium.end()

    server = Server([leaving] * 3)
    with server.client() as client, pytest.raises(ConnectionLost, match="its answer: nothing came for 9 s"):
        client.request(READ if sent_all else upload(1000))
    assert server.tried == 3


def test_a_server_that_is_busy_says_so_and_is_not_asked_again() -> None:
    """GOAWAY first, for whoever has not asked yet; the ERROR is what counts."""

    def busy(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(GoAway(b"busy"), Error(event.id, refused(ServerBusy("connections", 7))))
            medium.end()

    server = Server([busy])
    with server.client() as client, pytest.raises(Refusal, match="no more than 7 connections at a time"):
        client.request(DELETE)
    assert server.tried == 1


def test_a_server_that_answers_and_closes_is_met_anew() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Reply(event.id, PONG))
            medium.end()

    server = Server([answering, answering])
    with server.client() as client:
        client.request(READ)
        client.request(READ)
    assert server.tried == 2
    assert len(server.pauses) <= 1


# -- silence


def test_a_silent_server_is_asked_and_then_given_up() -> None:
    server = Server([silent] * 3)
    with server.client() as client, pytest.raises(ConnectionLost, match="no sign of life for 140 s"):
        client.request(READ)
    pings = [event for event in server.connections[0].heard if isinstance(event, Ping)]
    assert len(pings) == int(IDLE_TIMEOUT / PING_INTERVAL)
    assert server.tried == 3


def test_a_slow_server_that_shows_signs_of_life_is_waited_for() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Ping):
            medium.say(Pong(event.payload))
            if len([each for each in medium.heard if isinstance(each, Ping)]) == 50:
                medium.say(Reply(1, PONG))

    server = Server([answering])
    with server.client() as client:
        client.request(READ)
    assert server.now >= 50 * PING_INTERVAL
    assert server.tried == 1


# -- refused for now


def refuse_times(times: int) -> Answering:
    """Somebody holds the lock, so many times."""
    left = [times]

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request) and not event.body:
            left[0] -= 1
            medium.say(Error(event.id, LOCKED) if left[0] >= 0 else Reply(event.id, DELETED))
        elif isinstance(event, End):
            medium.say(Error(event.id, LOCKED))

    return answering


LOCKED = refused(Locked("project/lock", 30))
DELETED = done(BranchDeleteResult([]))


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
    assert isinstance(raised.value.error, Locked)
    assert str(raised.value.error) == ("'project/lock' is held by another writer, who did not let go of it within 30 s")
    assert server.pauses == list(PAUSES)


def test_a_large_body_is_not_sent_again_unasked() -> None:
    server = Server([refuse_times(9)])
    flags = RequestFlag.BODY | RequestFlag.GRAPH_FIRST
    body = [(b"x" * 100, 1)]
    outgoing = Outgoing("project", [(repository_insert_pack, InsertPackRequest())], flags, body=lambda: body)
    with pytest.raises(Refusal):
        server.client().request(outgoing)
    assert server.pauses == []
