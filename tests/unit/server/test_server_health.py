"""server.health: what a load balancer is told."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import pytest
from memory_transport import MemoryTransport
from twisted.internet.task import Clock

from smartserver.server.executor import InlineExecutor, Lane
from smartserver.server.health import FRESH, PATIENCE, Health, look_at
from smartserver.server.pages import Answer
from smartserver.store.format import CLUSTER
from transports.errors import NoSuchFile, TransportFailed
from transports.local import LocalTransport


class Server:
    """A server's health, and its store, which is looked at when `answer` is called."""

    def __init__(self, executor: Any = None) -> None:
        self.clock, self.looks = Clock(), list[Callable[[], None]]()
        self.fails: Exception | None = None
        self.health = Health(self.look, cast("Any", executor or self), cast("Any", self.clock))

    def run(self, work: Callable[[], str], done: Callable[[str], None], lane: Lane) -> None:
        assert lane is Lane.HEALTH
        self.looks.append(lambda: done(work()))

    def look(self) -> None:
        if self.fails:
            raise self.fails

    def answer(self) -> None:
        self.looks.pop()()

    def ask(self, page: bytes = b"/readyz") -> list[Answer]:
        """The answer, once there is one."""
        given: list[Answer] = []
        self.health.pages[page]("", given.append)
        return given


def is_ready(answers: list[Answer]) -> bool:
    ((status, _, _),) = answers
    return status is HTTPStatus.OK


def test_an_answer_of_the_store_counts_for_a_while() -> None:
    server = Server()
    first, second = server.ask(), server.ask()
    assert first == second == []
    server.answer()  # One look for both.
    assert (is_ready(first), is_ready(second)) == (True, True)
    server.fails = TransportFailed("", "it is\naway")
    server.clock.advance(FRESH)
    assert is_ready(server.ask())
    server.clock.advance(0.1)
    third = server.ask()
    server.answer()
    assert third == [(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", b"it is away\n")]
    server.fails = ValueError()  # A mistake of ours; the next look is made all the same.
    failed = server.ask()
    server.answer()
    assert not is_ready(failed)
    server.fails = None
    fourth = server.ask()
    server.answer()
    assert is_ready(fourth)
    assert not server.looks
    assert not server.clock.getDelayedCalls()


def test_a_store_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    first = server.ask()
    server.clock.advance(PATIENCE)
    assert first[0][2] == b"the store did not answer within 2 s\n"
    second = server.ask()
    server.clock.advance(PATIENCE)
    assert not is_ready(second)
    server.answer()  # Of the one look, which is too late for both.
    assert is_ready(server.ask())
    assert [each.message for each in caplog.records] == [f"not ready: {first[0][2].decode().strip()}", "ready again"]


def test_a_server_that_stops_is_alive_and_not_ready() -> None:
    server = Server()
    asked = server.ask()
    server.health.is_stopping = True
    server.answer()
    assert not is_ready(asked)
    assert server.ask()[0][2] == b"the server is stopping\n"
    assert is_ready(server.ask(b"/healthz"))


def test_the_folder_is_looked_at(tmp_path: Any) -> None:
    look_at(store := MemoryTransport(), None)
    look_at(LocalTransport(tmp_path), None)
    with pytest.raises(NoSuchFile, match="gone"):
        look_at(LocalTransport(tmp_path / "gone"), None)
    store.put(CLUSTER, [b"new"])
    with pytest.raises(TransportFailed, match="'smartserver-cluster': it changed since"):
        look_at(store, None)
    look_at(store, b"new")
    assert is_ready(Server(InlineExecutor()).ask())
