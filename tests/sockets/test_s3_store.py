"""smartserver.store on transports.s3: a repository in a bucket, with all operations, through two gateways."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, push, refs_of, request_id
from versitygw import S3, environment

from smartserver.store.format import LOG
from smartserver.store.repository import PackRepository
from transports.s3 import S3Transport

pytestmark = [pytest.mark.sockets, pytest.mark.needs("versitygw")]

PATIENCE = 30
NAME = "team/project"

Open = Callable[[int], PackRepository]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def served(s3: S3, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Open:
    """A function that opens the repository of one bucket by one of the gateways, as a server that starts."""
    bucket, servers = s3.bucket(), iter(range(99))

    def begin(gateway: int) -> PackRepository:
        for name, value in environment(s3.gateways[gateway].endpoint).items():
            monkeypatch.setenv(name, value)
        transport = S3Transport(bucket, "repositories")
        transport.list_directory("")  # It connects now.
        return PackRepository(transport, NAME, clock=clock, randomness=Repeatable(next(servers)))

    return begin


def test_what_is_pushed_by_one_gateway_is_read_by_another(served: Open) -> None:
    history = History()
    line = history.line(5)
    one, other = served(0), served(1)
    assert not other.exists()
    for number, each in enumerate(line):
        push((one, other)[number % 2], history, [each], {MAIN: each})
        assert refs_of(other) == refs_of(one) == {MAIN: each}
    check_whole(served(1), history)
    assert other.folder.list_directory(LOG) == [f"{number:010}" for number in range(1, 7)]
    one.delete(request_id(), 0, "user")
    assert not other.exists()
    assert other.deleted()
    push(other, history, line, {MAIN: line[0]})
    check_whole(one, history)


def test_calls(served: Open) -> None:
    """Each operation has a bound on its calls; doc/design/0034-shared-stores.md has the figures."""
    history, server = History(), served(0)
    line = iter(history.line(3))

    def push_one(to: PackRepository) -> None:
        tip = next(line)
        push(to, history, [tip], {MAIN: tip})

    def calls(of: PackRepository, do: Callable[[], object]) -> int:
        assert isinstance(of.folder, S3Transport)
        of.folder.calls.clear()
        do()
        return of.folder.calls.total()

    other = served(1)
    assert calls(server, lambda: push_one(server)) <= 29
    assert calls(server, server.look) == 3
    assert calls(server, lambda: push_one(server)) <= 11
    assert calls(other, other.look) <= 8
    assert calls(server, lambda: push(server, history, [], {b"refs/heads/x": None})) <= 5


def test_a_pack_that_is_not_held_in_memory(served: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartserver.store.remote.AT_ONCE", 1000)
    history = History()
    tip = history.commit({"large": Repeatable()(6 << 20)})
    push(served(0), history, [tip], {MAIN: tip})
    check_whole(served(1), history)


def test_one_of_several_creates_it(served: Open) -> None:
    """A folder is not exclusive in a bucket: the record and the format are."""
    history, start = History(), threading.Barrier(6)
    tips = history.line(6)
    history.body(tips)  # Which is made in one thread.

    def create(number: int) -> None:
        start.wait(PATIENCE)
        push(servers[number], history, tips[: number + 1], {b"refs/heads/%d" % number: tips[number]})

    servers = [served(number % 2) for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(create, range(6)))
    assert refs_of(served(0)) == {b"refs/heads/%d" % number: tip for number, tip in enumerate(tips)}
    check_whole(servers[0], history)
