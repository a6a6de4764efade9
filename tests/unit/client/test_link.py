"""client.link, client.request: what is made of every answer, and of servers that speak something else."""

from __future__ import annotations

import msgspec
import pytest
from exchanges import DELETE, MAIN, READ
from scripted import Server, done, fault_of, refuse, refused, reply

from smartserver.client import link
from smartserver.client.request import Outgoing, Refusal
from smartserver.errors import DivergedBranches, NoSuchRepository, NotDone, UnknownRemoteError
from smartserver.verbs.branch_delete import BranchDeleteRequest, BranchDeleteResult, branch_delete
from smartserver.verbs.server_info import InfoRequest, InfoResult, server_info
from smartserver.verbs.server_ping import PingResult
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.messages import Fault, Outcome, Status, encode, raw
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
    assert str(result) == "no repository at 'sftp://h/srv/a%20b'"
    refusing = refuse(refused(NotDone(), NoSuchRepository("a")))
    with Server([refusing]).client(above="/srv/") as client, pytest.raises(Refusal) as caught:
        client.request(READ)
    assert str(caught.value.outcomes[0]) == "no repository at '/srv/a'"
