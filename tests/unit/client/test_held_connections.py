"""client.held, client.link, client.call: a connection that others used before."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence

import pytest
from agents import of_its_own
from scripted import DELETE, PONG, READ, UPLOADED, Answering, ScriptedMedium, Server, done, reply, silent, upload

from smartserver.client.call import Caller, Client
from smartserver.client.held import AgentHolder, Resumed, holder_for
from smartserver.client.link import LEAST_PATIENCE, ROUND_TRIPS
from smartserver.client.media.descriptors import DescriptorMedium
from smartserver.client.medium import Medium
from smartserver.client.places import parse_place
from smartserver.client.request import Outgoing
from smartserver.verbs.branch_delete import BranchDeleteResult
from smartserver.verbs.vfs import NoResult, PathRequest, mkdir
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import End, Event, GoAway, Ping, Pong, Reply, Request


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


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with of_its_own() as its:
        yield its


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("where", "login", "variables"),
    [
        ("hpss://there:1/", ["ssh"], {}),
        ("hpss://here:1/", [], {}),
        ("hpss://here:1/", ["ssh", "-4"], {}),
        ("hpss://here:1/", ["ssh"], {"SSH_AUTH_SOCK": "/run/another"}),
        ("hpss://here:1/", ["ssh"], {"HOME": "/home/another"}),
        ("hpss://here:1/", ["ssh"], {"KRB5CCNAME": "FILE:/tmp/another"}),
        ("hpss://here:1/", ["ssh"], {"PATH": "/where/another/is"}),
    ],
)
def test_it_lends_to_who_would_make_the_same_connection(
    environment: dict[str, str], where: str, login: Sequence[str], variables: dict[str, str]
) -> None:
    ours, theirs = socket.socketpair()
    with theirs, ours:
        assert AgentHolder("hpss://here:1/", ["ssh"], environment).give(DescriptorMedium([ours.fileno()]), 4, 2.5)
    assert AgentHolder(where, login, environment | variables).take() is None


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
