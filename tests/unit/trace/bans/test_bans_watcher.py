"""trace.bans.watcher, trace.bans.operations: what is decoded, what is one operation, and what is raised to whom."""

from __future__ import annotations

import weakref

import msgspec
import pytest
from ban_cases import DELETE
from banned_talk import Talk

from smartserver.errors import Banned
from smartserver.trace.bans.every import bans
from smartserver.trace.bans.model import Ban, Finding, WatchedRequest
from smartserver.trace.bans.operations import Operations, one_operation
from smartserver.trace.bans.watcher import Watcher
from smartserver.verbs.repository_stats import StatsRequest
from smartserver.verbs.server_ping import PingRequest
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Request
from smartserver.wire.messages import Call, encode
from smartserver.wire.messages import Request as RequestMessage


class Noting(Ban):
    """Notes what it is asked about."""

    name = "noting"

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def asking(self, asked: WatchedRequest) -> Finding | None:
        self.told.append([verb.name for verb, _ in asked.calls])
        return None


def talk_of(*made: Ban) -> Talk:
    talk = Talk()
    talk.watcher = Watcher(made)
    talk.connect()
    return talk


def test_what_no_server_would_take_is_left_to_it() -> None:
    noting = Noting()
    talk = talk_of(noting)
    with one_operation():
        talk.ask(("No.such_verb", PingRequest()))
        talk.ask(("Repository.stats", StatsRequest()), ("Branch.delete", StatsRequest()))
        message = RequestMessage("p", b"i" * 16, 0, [Call("Branch.delete", msgspec.Raw(b"\x01"))])
        talk.up(Request(9, encode(message)))
    assert noting.told == []


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


# -- operations


def test_nothing_lives_longer_for_being_watched() -> None:
    own = Operations()

    class Held:
        pass

    def call() -> weakref.ref[Held]:
        held = Held()
        own.begins()
        return weakref.ref(held)

    assert call()() is None
