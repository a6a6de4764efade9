"""client.link, request, held: what is made of every answer, of bodies each way, of servers that break off, and of a
connection that others used before."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from agents import of_its_own
from scripted import (
    DELETE,
    MAIN,
    PONG,
    READ,
    UPLOADED,
    Answering,
    ScriptedMedium,
    Server,
    done,
    fault_of,
    refuse,
    refused,
    reply,
    silent,
    upload,
)

from smartserver.client import link
from smartserver.client.call import Caller, Client
from smartserver.client.held import AgentHolder, Resumed, holder_for
from smartserver.client.link import FIRST_WRITE, LEAST_PATIENCE, NEXT_WRITE, ROUND_TRIPS
from smartserver.client.media.descriptors import DescriptorMedium
from smartserver.client.medium import ConnectionLost, Medium
from smartserver.client.places import parse_place
from smartserver.client.request import Outgoing, Refusal
from smartserver.errors import DivergedBranches, NoSuchRepository, NotDone, UnknownRemoteError
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.server_info import InfoRequest, InfoResult, server_info
from smartserver.verbs.server_ping import PingRequest, PingResult, server_ping
from smartserver.verbs.vfs import NoResult, PathRequest, mkdir
from smartserver.wire.connection import Connection, Role
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, Cancel, End, Error, Event, GoAway, Ping, Pong, Reply, Request
from smartserver.wire.messages import Fault, Outcome, RequestFlag, Status, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage


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


def test_a_reply_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MAX_MESSAGE", 1000)
    server = Server([reply(done(InfoResult("v" * 1000, [])))])
    with server.client() as client, pytest.raises(RemoteProtocolError, match="a reply of no more than 1000 bytes"):
        client.call(server_info, InfoRequest())
    assert server.connections[0].closed


def test_results_longer_than_a_server_makes_them_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    long = Outcome(Status.DONE, raw(["a field of a later release" * 20]))
    server = Server([reply(encode(ReplyMessage([long, long, Outcome(Status.REFUSED)])))] * 2)
    asked = Outgoing("project", list(READ.calls) * 3)
    size = 2 * len(long.result)
    monkeypatch.setattr(link, "MAX_RESULTS", size)
    with server.client() as client:
        assert client.request(asked).results[:2] == [PingResult()] * 2
    monkeypatch.setattr(link, "MAX_RESULTS", size - 1)
    with (
        server.client() as client,
        pytest.raises(RemoteProtocolError, match=f"{size - 1} of each, got {size} bytes of results and 0 of errors"),
    ):
        client.request(asked)
    assert (server.tried, server.connections[1].closed) == (2, 1)


def test_so_are_the_errors_of_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    long = Outcome(Status.REFUSED, fault=Fault("later", raw({"why": "x" * 500})))
    server = Server([reply(encode(ReplyMessage([long, long])))])
    monkeypatch.setattr(link, "MAX_RESULTS", 1000)
    with (
        server.client() as client,
        pytest.raises(RemoteProtocolError, match="got 0 bytes of results and 1016 of errors"),
    ):
        client.request(Outgoing("project", list(READ.calls) * 2))


def test_paths_in_errors_are_what_the_user_calls_them() -> None:
    """The paths of calls, and of the request, are meant."""
    answered = reply(encode(ReplyMessage([Outcome(Status.REFUSED, fault=fault_of(NoSuchRepository("a b")))])))
    with Server([answered]).client(above="sftp://h/srv/") as client:
        (result,) = client.request(READ).results
    assert str(result) == "there is no repository at 'sftp://h/srv/a%20b'"
    refusing = refuse(refused(NotDone(), NoSuchRepository("a")))
    with Server([refusing]).client(above="/srv/") as client, pytest.raises(Refusal) as caught:
        client.request(READ)
    assert str(caught.value.outcomes[0]) == "there is no repository at '/srv/a'"


def test_after_the_first_write_what_was_made_is_not_held_for_long() -> None:
    """Nor is the beginning of a body sent before there is enough for a flight."""
    came: list[int] = []

    def body() -> Iterator[tuple[bytes, int]]:
        for _ in range(20):
            heard = server.connections[0].heard
            came.append(sum(len(event.chunk) for event in heard if isinstance(event, Body)))
            yield b"x" * 10_000, 1

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, End):
            medium.say(Reply(event.id, UPLOADED))

    server = Server([answering])
    with server.client() as client:
        client.request(Outgoing("project", upload(1).calls, RequestFlag.BODY, body=body))
    made = range(0, 200_000, 10_000)
    assert [sent for sent in came if not sent] == [0] * (FIRST_WRITE // 10_000 + 1)
    assert max(before - sent for before, sent in zip(made, came, strict=True) if sent) < NEXT_WRITE


@pytest.mark.parametrize("takes", [1 << 30, 1000])
def test_an_early_refusal_stops_the_body(takes: int) -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Body) and not medium.has_refused:
            medium.has_refused = True
            medium.say(Error(event.id, refused(DivergedBranches(MAIN, b"t" * 20))))
        if isinstance(event, Request) and event.id == 2:
            medium.say(Reply(event.id, PONG))

    server = Server([answering], takes=takes)
    with server.client() as client:
        with pytest.raises(Refusal) as caught:
            client.request(upload(1000))
        assert isinstance(caught.value.error, DivergedBranches)
        heard = list(server.connections[0].heard)
        assert heard[-1] == Cancel(1)
        assert len([each for each in heard if isinstance(each, Body)]) <= 4
        client.call(server_ping, PingRequest())
    assert (server.tried, server.pauses) == (1, [])


@pytest.mark.parametrize("takes", [5, 7, 8])
def test_a_ping_in_the_middle_of_a_frame_is_answered_between_frames(takes: int) -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Ping(b"still sending?"))
        if isinstance(event, End):
            medium.say(Reply(event.id, UPLOADED))

    server = Server([answering], takes=takes)
    with server.client() as client:
        client.request(upload(2, 3000))
    heard = server.connections[0].heard
    assert Pong(b"still sending?") in heard
    assert End(1, 2, 6000) in heard


def test_a_server_that_refuses_and_closes_at_once_is_heard() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Body) and not medium.has_refused:
            medium.has_refused = True
            medium.say(Error(event.id, refused(DivergedBranches(MAIN, b"t" * 20))))
            medium.end()

    server = Server([answering, reply(PONG)])
    with server.client() as client:
        with pytest.raises(Refusal):
            client.request(upload(1000))
        client.request(READ)
    assert [connection.closed for connection in server.connections] == [1, 1]


def test_a_bug_here_closes_the_connection() -> None:
    def body() -> Iterator[tuple[bytes, int]]:
        yield b"abc", 1
        raise KeyError("local")

    server = Server([silent])
    with server.client() as client, pytest.raises(KeyError):
        client.request(Outgoing("project", upload(1).calls, RequestFlag.BODY, body=body))
    assert server.connections == [] or server.connections[0].closed


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


@pytest.mark.parametrize("has_answered", [True, False])
def test_a_connection_that_breaks_is_told_apart_from_a_stranger(has_answered: bool) -> None:
    """A server that answered before speaks hpss, so the message does not doubt it."""

    def breaking(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request) and has_answered and server.tried == 1:
            medium.say(GoAway(b""), Reply(event.id, PONG))
        elif isinstance(event, Request):
            medium.break_off()

    server = Server([breaking] * 4)
    told = r"broke \(Connection reset by peer\)$" if has_answered else "by peer\\): it may have stopped, or be too busy"
    with server.client() as client:
        if has_answered:
            client.call(server_ping, PingRequest())
        with pytest.raises(ConnectionLost, match=told):
            client.call(server_ping, PingRequest())


class Shelf:
    """Holds what is given to it."""

    def __init__(self) -> None:
        self.held: list[Resumed] = []
        self.asked = 0

    def take(self) -> Resumed | None:
        self.asked += 1
        return self.held.pop() if self.held else None

    def give(self, medium: Medium, last_id: int, patience: float) -> bool:
        self.held.append(Resumed(medium, last_id, patience))
        return True


def client(server: Server, shelf: Shelf) -> Client:
    return Client(
        server.connect, (), Caller("a test", holder=shelf), clock=lambda: server.now, sleep=server.pauses.append
    )


def answering(payload: bytes = PONG, *, seconds: float = 0.0) -> Answering:
    """A server that answers PINGs, and requests after so many seconds."""

    def answer(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Ping):
            medium.say(Pong(event.payload))
        elif isinstance(event, End) or (isinstance(event, Request) and not event.body):
            medium.pass_time(seconds)
            medium.say(Reply(event.id, payload))

    return answer


def goes_away(medium: ScriptedMedium, event: Event) -> None:
    if isinstance(event, Request):
        medium.say(GoAway(b"restarting"), Reply(event.id, PONG))


def owes(medium: ScriptedMedium, event: Event) -> None:
    """Asks for a sign of life, which the client had no time to give."""
    if isinstance(event, Request):
        medium.raw(medium.wire.send(Reply(event.id, PONG)) + medium.wire.send(Ping(b"still there?"))[:9])


def leaves_a_body(medium: ScriptedMedium, event: Event) -> None:
    if isinstance(event, Request):
        medium.say(Reply(event.id, PONG, body=True))


@pytest.mark.parametrize("how", [goes_away, owes, leaves_a_body])
def test_one_that_is_not_at_rest_is_not_given_on(how: Answering) -> None:
    server, shelf = Server([how]), Shelf()
    with client(server, shelf) as one:
        one.request(READ)
    assert shelf.held == []
    assert server.connections[0].closed == 1


@pytest.mark.parametrize(("seconds", "patience"), [(0.0, LEAST_PATIENCE), (2.0, ROUND_TRIPS * 2.0)])
def test_what_it_took_says_how_long_to_wait(seconds: float, patience: float) -> None:
    server, shelf = Server([answering(seconds=seconds)]), Shelf()
    with client(server, shelf) as one:
        one.request(READ)
    assert shelf.held[0].patience == patience


def resumed(server: Server, patience: float) -> Resumed:
    """A connection on which five requests were made."""
    medium = server.connect()
    assert isinstance(medium, ScriptedMedium)
    medium.wire = Connection(Role.SERVER, last_id=5)
    return Resumed(medium, 5, patience)


@pytest.mark.parametrize(
    ("outgoing", "answer"),
    [(DELETE, done(BranchDeleteResult([]))), (upload(4), UPLOADED)],
    ids=["a call", "a body"],
)
def test_where_nothing_comes_back_the_request_is_repeated_on_another(outgoing: Outgoing, answer: bytes) -> None:
    """By its id, and without a pause: what is not there needs none."""
    server, shelf = Server([silent, answering(answer)]), Shelf()
    shelf.held = [resumed(server, 1.5)]
    with client(server, shelf) as one:
        one.request(outgoing)
    assert server.now == 1.5
    first, second = [connection.request for connection in server.connections]
    assert first.id == second.id
    assert (first.age, second.age) == (0, 1500)
    assert server.pauses == [0.0]
    assert shelf.asked == 1


def test_a_change_of_files_which_no_log_knows_goes_over_a_connection_of_its_own() -> None:
    server, shelf = Server([reply(done(NoResult()))]), Shelf()
    change = Outgoing("project", [(mkdir, PathRequest("a"))])
    with client(server, shelf) as one:
        one.request(change)
    assert shelf.asked == 0


# -- the user's agent


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("where", "login", "variables"),
    [
        ("hpss+ssh://there/srv/", ["ssh"], {}),
        ("hpss+ssh://here/srv/", [], {}),
        ("hpss+ssh://here/srv/", ["ssh", "-4"], {}),
        ("hpss+ssh://here/srv/", ["ssh"], {"SSH_AUTH_SOCK": "/run/another"}),
        ("hpss+ssh://here/srv/", ["ssh"], {"HOME": "/home/another"}),
        ("hpss+ssh://here/srv/", ["ssh"], {"KRB5CCNAME": "FILE:/tmp/another"}),
        ("hpss+ssh://here/srv/", ["ssh"], {"PATH": "/where/another/is"}),
    ],
)
def test_it_lends_to_who_would_make_the_same_connection(
    where: str, login: Sequence[str], variables: dict[str, str]
) -> None:
    """The connection is alive, and is lent to nobody else."""
    ours, theirs = socket.socketpair()
    with of_its_own() as its, theirs, ours:
        assert AgentHolder("hpss+ssh://here/srv/", ["ssh"], its).give(DescriptorMedium([ours.fileno()]), 4, 2.5)
        ours.close()
        assert AgentHolder(where, login, its | variables).take() is None


@pytest.mark.parametrize(
    ("url", "value", "holds"),
    [
        ("hpss://host/project", "1", True),
        ("hpss+ssh://host/srv/project", "1", True),
        ("hpss+sftp://host/srv/project", "1", False),
        ("hpss://host/project", "0", False),
    ],
)
def test_which_connections_are_held(url: str, value: str, holds: bool) -> None:
    found = holder_for(parse_place(url), [], {"SMARTSERVER_AGENT": value})
    assert (found is not None) is holds
