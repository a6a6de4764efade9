"""client.link: bodies that come and bodies that are sent, whole and broken off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exchanges import MAIN, PONG, READ, UPLOADED, upload
from scripted import ScriptedMedium, Server, refused, reply

from smartserver.client.link import FIRST_WRITE, NEXT_WRITE
from smartserver.client.request import Outgoing, Refusal
from smartserver.errors import (
    DivergedBranches,
)
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Error,
    Event,
    Ping,
    Pong,
    Reply,
    Request,
)
from smartserver.wire.messages import RequestFlag


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
