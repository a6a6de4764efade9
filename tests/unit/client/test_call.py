"""client.call: requests over one connection that is opened when it is needed, and what they raise."""

from __future__ import annotations

import pytest
from exchanges import DELETE, MAIN, PONG
from scripted import ScriptedMedium, Server, done, fault_of, refuse, refused, reply

from smartserver.client.request import Outgoing, Refusal
from smartserver.errors import DivergedBranches, LimitExceeded, RequestRefused
from smartserver.verbs.branch_delete import BranchDeleteRequest, branch_delete
from smartserver.verbs.server_info import InfoRequest, InfoResult, server_info
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.events import Error, Event, Reply, Request
from smartserver.wire.messages import Outcome, Status, encode
from smartserver.wire.messages import Reply as ReplyMessage


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
