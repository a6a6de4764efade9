"""client.link: servers that break off, close, go away, or stay silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from exchanges import DELETE, PONG, READ, broken, closed, silent, upload
from scripted import Answering, ScriptedMedium, Server, refused, reply

from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.request import Outgoing, Refusal
from smartserver.errors import ServerBusy
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, Error, Event, GoAway, Ping, Pong, Reply, Request
from smartserver.wire.frames import PREFACE
from smartserver.wire.limits import IDLE_TIMEOUT, PING_INTERVAL
from smartserver.wire.messages import RequestFlag


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
