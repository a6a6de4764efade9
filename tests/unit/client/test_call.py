"""client.call, certainty, retry, credentials: changes that are repeated and made, not made or unknown, and when; tokens
that are wanted."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from scripted import (
    DELETE,
    MAIN,
    PONG,
    Answering,
    ScriptedMedium,
    Server,
    banner,
    broken,
    done,
    fault_of,
    refuse,
    refused,
    reply,
    upload,
)

from smartserver.client.certainty import Certainty
from smartserver.client.credentials import NoToken
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.request import NotOurProtocol, Outgoing, Refusal
from smartserver.client.retry import PAUSES, may_help
from smartserver.errors import (
    AccessDenied,
    DivergedBranches,
    OutcomeUnknown,
    RepositoryChanged,
    RequestRefused,
    ServerBusy,
)
from smartserver.verbs.branch_delete import BranchDeleteResult
from smartserver.verbs.repository_insert_pack import InsertPackRequest, InsertPackResult, repository_insert_pack
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.errors import Interrupted, NotHpss, RemoteProtocolError
from smartserver.wire.events import Body, End, Error, Event, Reply, Request
from smartserver.wire.frames import PREFACE
from smartserver.wire.messages import Outcome, RequestFlag, Status, decode_request, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage
from transports.errors import CodedError

CHANGED = refused(RepositoryChanged("packs/1"))


DELETED = done(BranchDeleteResult([]))


def refuse_times(times: int) -> Answering:
    """The repository changes meanwhile, so many times."""
    left = [times]

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request) and not event.body:
            left[0] -= 1
            medium.say(Error(event.id, CHANGED) if left[0] >= 0 else Reply(event.id, DELETED))
        elif isinstance(event, End):
            medium.say(Error(event.id, CHANGED))

    return answering


@pytest.mark.parametrize(
    "error", [ServerBusy("connections", 7), AccessDenied("write", "why"), DivergedBranches(MAIN, b"t" * 20)]
)
def test_a_repeat_that_is_refused_leaves_it_unknown(error: CodedError) -> None:
    """The first sending may be in progress still, and be carried out later."""
    server = Server([broken, refuse(refused(error))])
    with server.client() as client, pytest.raises(OutcomeUnknown) as raised:
        client.request(DELETE)
    assert raised.value.why == f"sent again, it was refused: {error}"
    assert server.tried == 2


def test_a_repeat_that_waits_in_vain_leaves_it_unknown() -> None:
    """The first sending may be in progress still."""
    server = Server([broken, refuse_times(9)])
    with server.client() as client, pytest.raises(OutcomeUnknown, match="packs/1 is gone"):
        client.request(DELETE)


def test_a_repeat_of_which_the_log_says_too_little_says_so() -> None:
    server = Server([broken, refuse(refused(OutcomeUnknown("the log is too short")))])
    with server.client() as client, pytest.raises(OutcomeUnknown) as raised:
        client.request(DELETE)
    assert raised.value.why == "the log is too short"


def test_a_repeat_that_is_done_in_part_leaves_the_rest_unknown() -> None:
    calls = [*DELETE.calls, *DELETE.calls]
    fault = fault_of(DivergedBranches(MAIN, b"t" * 20))
    outcomes = [Outcome(Status.DONE, raw(BranchDeleteResult([]))), Outcome(Status.REFUSED, fault=fault)]
    server = Server([broken, reply(encode(ReplyMessage(outcomes)))])
    with server.client() as client:
        made, unknown = client.request(Outgoing("project", calls)).results
    assert isinstance(made, BranchDeleteResult)
    assert isinstance(unknown, OutcomeUnknown)
    assert unknown.why.startswith("sent again, it was refused: ")


def test_a_question_whether_a_change_could_be_made_is_a_read() -> None:
    server = Server([broken] * 3)
    with server.client() as client, pytest.raises(ConnectionLost):
        client.request(Outgoing("project", DELETE.calls, RequestFlag.CHECK_ONLY))


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
    assert isinstance(raised.value.error, RepositoryChanged)
    assert raised.value.error.file == "packs/1"
    assert server.pauses == list(PAUSES)


def test_a_large_body_is_not_sent_again_unasked() -> None:
    server = Server([refuse_times(9)])
    flags = RequestFlag.BODY | RequestFlag.GRAPH_FIRST
    body = [(b"x" * 100, 1)]
    outgoing = Outgoing("project", [(repository_insert_pack, InsertPackRequest())], flags, body=lambda: body)
    with pytest.raises(Refusal):
        server.client().request(outgoing)
    assert server.pauses == []


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
        pytest.raises(Refusal, match=r"^not allowed to log in: the token is unknown$"),
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
    assert str(refusal.value.outcomes[0]) == "not allowed to read: the rules say so; the user knows none"


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


UNMADE, HARDLY, PERHAPS = Certainty

UNREAD = [
    CannotConnect("h:1", "refused"),
    ConnectionLost("reset"),
    RemoteProtocolError("expected a reply"),
    NotHpss("expected an opening line"),
    NotOurProtocol("the server speaks version 2"),
]
STRANGER = NotHpss("expected an opening line")
NO_ANSWER = [ConnectionLost("reset"), RemoteProtocolError("expected a reply"), Interrupted("in the middle")]

TABLE = [
    # How the sending ended; whether it may have been read; what is known then if it was UNMADE, HARDLY, PERHAPS.
    *[(wrong, False, UNMADE, HARDLY, PERHAPS) for wrong in UNREAD],
    (STRANGER, True, HARDLY, HARDLY, PERHAPS),
    (CannotConnect("me@h", "ssh ended with status 1"), True, HARDLY, HARDLY, PERHAPS),
    *[(wrong, True, PERHAPS, PERHAPS, PERHAPS) for wrong in NO_ANSWER],
]


@pytest.mark.parametrize(
    ("wrong", "read", "unmade", "hardly", "perhaps"), TABLE, ids=[f"{type(row[0]).__name__}-{row[1]}" for row in TABLE]
)
def test_what_is_known_after(
    wrong: Exception, read: bool, unmade: Certainty, hardly: Certainty, perhaps: Certainty
) -> None:
    after = [before.after(wrong, perhaps_read=read) for before in (UNMADE, HARDLY, PERHAPS)]
    assert after == [unmade, hardly, perhaps]


LOST, DOUBTFUL = {"lost"}, {"lost", "doubtful"}


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (ConnectionLost("reset"), [set(), LOST, DOUBTFUL]),
        (CannotConnect("h:1", "refused"), [LOST, DOUBTFUL]),
        (RemoteProtocolError("expected a reply"), [DOUBTFUL]),
        (NotHpss("expected an opening line"), [DOUBTFUL]),
        (NotOurProtocol("version 2"), []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_when_sending_again_may_help(error: Exception, helps: list[set[str]]) -> None:
    for known in (set(), LOST, DOUBTFUL):
        assert may_help(error, lost="lost" in known, doubtful="doubtful" in known) is (known in helps), known
