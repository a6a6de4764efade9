"""client.link: servers that break off, close, go away, or stay silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from exchanges import DELETE, READ, silent, upload
from scripted import ScriptedMedium, Server, refused

from smartserver.client.medium import ConnectionLost
from smartserver.client.request import Outgoing, Refusal
from smartserver.errors import ServerBusy
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, Error, Event, GoAway, Ping, Request
from smartserver.wire.frames import PREFACE
from smartserver.wire.messages import RequestFlag


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
