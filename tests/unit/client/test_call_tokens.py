"""client.call, client.link, client.request, client.credentials: a request that a server wants a token for."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from exchanges import DELETE, PONG
from scripted import Answering, ScriptedMedium, Server, done, refused

from smartserver.client.credentials import NoToken
from smartserver.client.request import Outgoing, Refusal
from smartserver.errors import AccessDenied, RequestRefused
from smartserver.verbs.branch_delete import BranchDeleteResult
from smartserver.verbs.repository_insert_pack import InsertPackRequest, InsertPackResult, repository_insert_pack
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.events import Body, End, Error, Event, Reply, Request
from smartserver.wire.messages import RequestFlag, decode_request
from transports.errors import CodedError

WANTED = AccessDenied("read", "the rules say so", token="wanted")
REFUSED = AccessDenied("log in", "the token is unknown", token="refused")
PING = Outgoing("", [(server_ping, PingRequest())])


@dataclass
class User:
    """Knows some tokens, and gives one each time that he is asked."""

    knows: list[str] = field(default_factory=list)
    sends: str = ""
    did: list[str] = field(default_factory=list)

    def token(self) -> str:
        self.did.append("token")
        return self.sends

    def ask(self) -> str:
        self.did.append("ask")
        if not self.knows:
            raise NoToken("the user knows none")
        return self.knows.pop(0)

    def approve(self) -> None:
        self.did.append("approve")

    def reject(self) -> None:
        self.did.append("reject")


def token_of(event: Request) -> str | None:
    extras = decode_request(event.payload).extras
    return msgspec.msgpack.decode(extras["token"], type=str) if "token" in extras else None


def wanting(valid: str, otherwise: CodedError | None = None, payload: bytes = PONG) -> Answering:
    """Wants this token, and answers with the payload, or `otherwise`."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            token = token_of(event)
            if token != valid:
                medium.say(Error(event.id, refused(WANTED if token is None else REFUSED)))
            elif otherwise is not None:
                medium.say(Error(event.id, refused(otherwise)))
            else:
                medium.say(Reply(event.id, payload))

    return answering


def sent(server: Server) -> list[str | None]:
    return [token_of(each) for each in server.connections[0].heard if isinstance(each, Request)]


def test_the_user_is_asked_once_and_the_same_request_sent_again() -> None:
    server, user = Server([wanting("right")]), User(["right"])
    with server.client(credentials=user) as client:
        client.request(PING)
        client.request(PING)
    assert sent(server) == [None, "right", "right"]
    assert user.did == ["token", "ask", "approve"]
    messages = [decode_request(each.payload) for each in server.connections[0].heard if isinstance(each, Request)]
    assert {each.id for each in messages} == {PING.id}
    assert [each.age for each in messages][:2] == [0, 0]  # Nothing was done: it is no repeat.
    assert (server.tried, server.pauses) == (1, [])


def test_the_second_one_that_is_wrong_is_the_last() -> None:
    server, user = Server([wanting("right")]), User(["wrong", "right"])
    with (
        server.client(credentials=user) as client,
        pytest.raises(Refusal, match=r"^not allowed: log in: the token is unknown$"),
    ):
        client.request(PING)
    assert sent(server) == [None, "wrong"]
    assert user.did == ["token", "ask", "reject"]


def test_a_call_that_wants_one_is_enough() -> None:
    """Nothing was changed, so all of the request is sent again."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Error(event.id, refused(RequestRefused(), WANTED if token_of(event) is None else None)))

    server, user = Server([answering]), User(["right"])
    with server.client(credentials=user) as client, pytest.raises(Refusal):
        client.request(DELETE)
    assert sent(server) == [None, "right"]
    silent = Server([answering])
    with silent.client(credentials=User()) as client, pytest.raises(Refusal) as refusal:
        client.request(DELETE)
    assert str(refusal.value.outcomes[0]) == "not allowed: read: the rules say so; the user knows none"


def test_a_body_is_sent_again_whole() -> None:
    made: list[int] = []

    def body() -> list[tuple[bytes, int]]:
        made.append(1)
        return [(b"x" * 10, 1)]

    def answering(medium: ScriptedMedium, event: Event) -> None:
        request = [each for each in medium.heard if isinstance(each, Request)][-1]
        if isinstance(event, End):
            token = token_of(request)
            medium.say(
                Error(request.id, refused(WANTED)) if token is None else Reply(request.id, done(InsertPackResult(0)))
            )

    server, user = Server([answering]), User(["right"])
    outgoing = Outgoing("x", [(repository_insert_pack, InsertPackRequest())], RequestFlag.BODY, None, body)
    with server.client(credentials=user) as client:
        client.request(outgoing)
    assert len(made) == 2
    assert sum(len(each.chunk) for each in server.connections[0].heard if isinstance(each, Body)) == 20


def test_a_change_that_may_have_been_made_is_still_a_repeat() -> None:
    """The first sending was lost; the token was wanted for the second."""

    def losing(medium: ScriptedMedium, event: Event) -> None:
        medium.break_off()

    wanting_one = wanting("right", payload=done(BranchDeleteResult([])))
    server, user = Server([losing, wanting_one]), User(["right"])
    with server.client(credentials=user) as client:
        client.request(DELETE)
    ages = [decode_request(each.payload).age for each in server.connections[1].heard if isinstance(each, Request)]
    assert len(ages) == 2
    assert min(ages) >= 1
