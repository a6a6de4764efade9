"""client.link: servers that break off, close, go away, or stay silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exchanges import READ, silent, upload
from scripted import ScriptedMedium, Server

from smartserver.client.medium import ConnectionLost
from smartserver.client.request import Outgoing
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, Event, GoAway, Request
from smartserver.wire.frames import PREFACE
from smartserver.wire.messages import RequestFlag


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
