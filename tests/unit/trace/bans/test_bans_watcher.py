"""trace.bans.watcher, trace.bans.operations: what is decoded, what is one operation, and what is raised to whom."""

from __future__ import annotations

import weakref

import msgspec
import pytest
from ban_cases import ANSWER, DELETE, INSERT, PING, SET, SET_DONE, STATS, connects_again_for_nothing, pull_of
from banned_talk import Talk

from smartserver.client.call import Client
from smartserver.client.medium import CannotConnect, Medium
from smartserver.errors import Banned, CorruptFile
from smartserver.trace.bans import operations
from smartserver.trace.bans.every import bans
from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest
from smartserver.trace.bans.operations import Operations, call_site, one_operation
from smartserver.trace.bans.watcher import Watcher
from smartserver.verbs.repository_pull import PullResult
from smartserver.verbs.repository_stats import StatsRequest
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Cancel, End, Error, GoAway, Ping, Reply, Request
from smartserver.wire.messages import Call, Failure, Fault, RequestFlag, encode, raw
from smartserver.wire.messages import Request as RequestMessage


class Noting(Ban):
    """Notes what it is told."""

    name = "noting"

    def __init__(self) -> None:
        self.told: list[object] = []

    def begin(self) -> None:
        self.told.append("begin")

    def connecting(self) -> None:
        self.told.append("connecting")

    def asking(self, asked: WatchedRequest) -> Finding | None:
        self.told.append([verb.name for verb, _ in asked.calls])
        return None

    def sending(self, asked: WatchedRequest, chunk: bytes) -> Finding | None:
        self.told.append(chunk)
        return None

    def sent(self, asked: WatchedRequest) -> Finding | None:
        self.told.append("sent")
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        self.told.append(answered.fault.code if answered.fault else answered.results)

    def ended(self) -> None:
        self.told.append("ended")

    def leaving(self) -> None:
        self.told.append("leaving")


def talk_of(*made: Ban) -> Talk:
    talk = Talk()
    talk.watcher = Watcher(made)
    talk.connect()
    return talk


def test_what_a_ban_is_told() -> None:
    noting = Noting()
    with one_operation():
        talk = talk_of(noting)
        number = talk.ask(INSERT, SET, flags=RequestFlag.BODY)
        talk.up(Ping())
        talk.body(number, b"body")
        talk.answer(number, None, SET_DONE)
        number = talk.ask(STATS)
        talk.down(Reply(number, ANSWER, True), End(number, 0, 0))
        talk.ask(STATS)
        talk.up(Cancel(3))
        talk.down(GoAway())
    assert noting.told == [
        "begin",
        "connecting",
        ["Repository.insert_pack", "Branch.set_last_revision"],
        b"body",
        "sent",
        [None, SET_DONE],
        ["Repository.stats"],
        [],
        "ended",
        ["Repository.stats"],
        "leaving",
    ]


def test_an_answer_in_parts_and_one_that_ends_in_an_error() -> None:
    noting = Noting()
    with one_operation():
        talk = talk_of(noting)
        number = talk.ask(pull_of(b"a"))
        long = PullResult(trees=[bytes([each]) * 1000 for each in range(255)] + [b"k" * 9000])
        talk.answer(number, long)
        number = talk.ask(STATS)
        talk.down(Reply(number, ANSWER, True))
        talk.down(Error(number, encode(Failure(Fault("corrupt-file", raw(CorruptFile("a", 1, "b").wire_arguments()))))))
    assert noting.told[2:] == [["Repository.pull"], [long], ["Repository.stats"], [], "corrupt-file"]


def test_what_no_server_would_take_is_left_to_it() -> None:
    noting = Noting()
    talk = talk_of(noting)
    with one_operation():
        talk.ask(("No.such_verb", PingRequest()))
        talk.ask(("Repository.stats", StatsRequest()), ("Branch.delete", StatsRequest()))
        message = RequestMessage("p", b"i" * 16, 0, [Call("Branch.delete", msgspec.Raw(b"\x01"))])
        talk.up(Request(9, encode(message)))
    assert [each for each in noting.told if isinstance(each, list)] == []


def test_what_is_sent_again_is_no_other_request() -> None:
    with one_operation():
        talk = Talk("silly")
        talk.ask(DELETE, again=b"i" * 16)
        talk.connect()
        talk.answer(talk.ask(DELETE, again=b"i" * 16))
        talk.ask(DELETE, again=b"i" * 16)
        talk = Talk("rpc:Branch.delete")
        for _ in range(2):
            with pytest.raises(Banned):
                talk.ask(DELETE, again=b"i" * 16)


def test_it_is_told_and_raised_before_anything_is_sent() -> None:
    told: list[Banned] = []
    client = Connection(Role.CLIENT, [Watcher(bans(["rpc:Server.ping"]), told.append)])
    message = RequestMessage("p", b"i" * 16, 0, [Call("Server.ping", msgspec.Raw(b"\x90"))])
    with pytest.raises(
        Banned, match=r"^Server\.ping is banned by the rule rpc:Server\.ping; called from tests/"
    ) as caught:
        client.send(Request(1, encode(message)))
    assert told == [caught.value]
    assert (caught.value.verb, caught.value.rule) == ("Server.ping", "rpc:Server.ping")


def test_a_ban_is_a_reason_to_connect_again() -> None:
    with one_operation():
        talk = Talk("silly")
        for revision in (b"a", b"b"):
            talk.done(pull_of(revision), results=[PullResult()])
        with pytest.raises(Banned, match="per-item"):
            talk.ask(pull_of(b"c"))
        talk.connect()
        talk.ask(DELETE)


def test_a_client_that_is_banned_closes_and_goes_on() -> None:
    opened: list[int] = []

    def connect() -> Medium:
        opened.append(1)
        raise CannotConnect("h", "nobody")

    client = Client(connect, [Watcher(bans(["rpc:Server.ping"]))])
    with pytest.raises(CannotConnect):
        client.call(server_ping, PingRequest())
    assert opened == [1]


# -- operations


def begun(own: Operations) -> bool:
    return own.begins()


def test_one_call_into_the_package_is_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_is_ours", lambda frame: frame.f_code.co_name in ("outer", "inner"))
    own = Operations()

    def inner() -> bool:
        return begun(own)

    def outer() -> list[bool]:
        return [inner(), inner()]

    assert outer() == [True, False]
    assert [outer() for _ in range(3)] == [[True, False]] * 3
    assert [inner(), inner()] == [True, True]
    with one_operation():
        assert [inner(), *outer()] == [True, False, False]
        with one_operation():
            assert not inner()
    assert inner()


def test_nothing_lives_longer_for_being_watched() -> None:
    own = Operations()

    class Held:
        pass

    def call() -> weakref.ref[Held]:
        held = Held()
        own.begins()
        return weakref.ref(held)

    assert call()() is None


def test_each_call_of_a_program_is_its_own_operation_unless_it_says_so() -> None:
    talk = Talk("silly")
    connects_again_for_nothing(talk)
    talk = Talk("silly")
    with one_operation(), pytest.raises(Banned):
        connects_again_for_nothing(talk)


def test_a_call_site_is_the_programs_own_line() -> None:
    first, *above = call_site().split(" < ")
    assert first.endswith(" in test_a_call_site_is_the_programs_own_line")
    assert "test_bans_watcher.py:" in first
    assert not above
    assert PING[0] == "Server.ping"
