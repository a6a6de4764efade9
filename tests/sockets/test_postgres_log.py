"""store.postgres_log: logs in a real PostgreSQL, and all other files in memory."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest
from builders import MAIN, Clock, History, check_whole, push, refs_of
from calls import calls_of
from changes import change
from memory_transport import MemoryTransport
from needs import needs
from postgres import Postgres

from smartserver.errors import Unsupported
from smartserver.records.model import Tip
from smartserver.store import checkpoint, recovery
from smartserver.store.commit import CommitOutcome
from smartserver.store.log_view import Head
from smartserver.store.lost import find
from smartserver.store.postgres import Database, create_tables
from smartserver.store.postgres_log import PostgresLog
from smartserver.store.record import record_path
from smartserver.store.repository import PackRepository
from smartserver.store.state import following
from smartserver.store.transaction import Transaction
from transports.errors import FileExists, TransportFailed
from transports.steps import Publish, Put

pytestmark = [pytest.mark.sockets, needs("initdb", "postgres")]

TIMEOUT = 60
"""Seconds after which a call that hangs fails the test."""


class Site:
    """A store that several servers share."""

    def __init__(self, server: Postgres) -> None:
        self.address = server.database()
        with create_tables(self.address, "one"):
            self.clock = Clock()
        self.files = MemoryTransport(self.clock)
        self.opened: list[Database] = []

    def database(self, store: str = "one") -> Database:
        self.opened.append(Database(self.address, store))
        return self.opened[-1]

    def server(self) -> PostgresLog:
        return PostgresLog(self.files, self.database())

    def repository(self) -> PackRepository:
        """Return the repository as a new server opens it."""
        return PackRepository(self.server(), "a/b", clock=self.clock)


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def site(postgres: Postgres) -> Iterator[Site]:
    made = Site(postgres)
    yield made
    for each in made.opened:
        each.close()


def move(
    repository: PackRepository, name: bytes, tip: bytes, first: Callable[[], None] = lambda: None
) -> CommitOutcome:
    def do(made: Transaction) -> None:
        first()
        made.set_ref(name, (Tip(tip),))

    return change(repository, do)


def test_two_servers(site: Site, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server sees the other's changes at once, also after records were deleted; a look is one statement."""
    monkeypatch.setattr(checkpoint, "FEW", 2)
    monkeypatch.setattr(checkpoint, "FLOOR_AGE", 0)
    one, other, line = site.repository(), site.repository(), history.line(12)
    push(one, history, line[:1], {MAIN: line[0]})
    for number, each in enumerate(line[1:], 1):
        site.clock.now += 10
        by, beside = (one, other) if number % 2 else (other, one)
        push(by, history, [each], {MAIN: each})
        by.tidy()
        assert refs_of(beside) == {MAIN: each}
    numbers = site.opened[0].numbers("a/b")
    assert numbers[0] > 1
    assert not site.files.exists("a/b/log") or site.files.list_directory("a/b/log") == []
    other.repack()
    check_whole(one, history)
    assert refs_of(site.repository()) == {MAIN: line[-1]}
    asked, changed = (calls_of(monkeypatch, site.opened[0], name) for name in ("_ask", "_change"))
    one.look()
    assert (len(asked), len(changed)) == (1, 0)
    move(one, b"refs/heads/side", line[0])
    assert (len(asked), len(changed)) == (2, 1)


def test_of_those_who_publish_at_once_one_succeeds(site: Site, history: History) -> None:
    """Nobody can publish after a deleted record, either."""
    repository = site.repository()
    push(repository, history, line := history.line(1), {MAIN: line[0]})
    head = repository.log.look()

    def publish(number: int, after: Head = head) -> bool:
        state = after.state
        content, after_it = following(state, number)
        path = f"a/b/incoming/{number}.record"
        try:
            site.server().perform([Put(path, content), Publish(path, f"a/b/{record_path(after_it.version)}")])
        except FileExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(publish, range(8))) == 1
    now = site.repository().log.look()
    assert now.state.version == head.state.version + 1
    site.database().delete("a/b", now.state.version)
    assert not publish(9, now)


def test_the_database_is_killed(site: Site, postgres: Postgres, history: History) -> None:
    """Acknowledged changes are there when the database is back, and the next request opens a new connection."""
    repository = site.repository()
    push(repository, history, line := history.line(2), {MAIN: line[0]})
    for number in range(2):
        postgres.stop()
        with pytest.raises(TransportFailed, match=r"^'a/b/log/\d+': the database of the logs"):
            repository.look()
        with pytest.raises(TransportFailed, match="database of the logs"):
            move(repository, b"refs/heads/away", line[0])
        postgres.start()
        name = b"refs/heads/%d" % number
        assert move(repository, name, line[1]).changed
        assert name in refs_of(site.repository())
    assert b"refs/heads/away" not in refs_of(repository)


def test_a_process_of_the_database_hangs(site: Site, history: History) -> None:
    """A read fails. A publication is repeated; the hanging one does nothing when its process wakes up."""
    repository = site.repository()
    push(repository, history, line := history.line(1), {MAIN: line[0]})
    pool, stopped = ThreadPoolExecutor(1), list[int]()

    def stop() -> None:
        ((process,),) = site.opened[0]._ask("", "SELECT pg_backend_pid()")
        os.kill(process, signal.SIGSTOP)
        stopped.append(process)

    try:
        stop()
        with pytest.raises(TransportFailed, match="database of the logs"):
            pool.submit(repository.look).result(TIMEOUT)
        assert pool.submit(move, repository, b"refs/heads/side", line[0], stop).result(TIMEOUT).changed
    finally:
        for each in stopped:
            os.kill(each, signal.SIGCONT)
    assert refs_of(site.repository()) == {MAIN: line[0], b"refs/heads/side": line[0]}
    assert move(repository, b"refs/heads/other", line[0]).changed


def test_a_database_that_accepts_and_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The database is tried once, and all its addresses share one timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(TransportFailed, match="database of the logs"):
            Database(address + "?host=127.0.0.1,127.0.0.1,127.0.0.1", "one").numbers("a")
        assert "it did not answer within 4 s" in caplog.text
        silent.setblocking(False)
        connections = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
        assert connections <= 3


def test_an_error_without_words(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise psycopg.OperationalError

    monkeypatch.setattr(psycopg.Connection, "connect", fail)
    with pytest.raises(TransportFailed, match="database of the logs"):
        site.database().numbers("a")


@pytest.mark.parametrize("gone", [[4, 5], [4]], ids=["a backup was put back", "a record is lost"])
def test_recovery(site: Site, history: History, gone: list[int]) -> None:
    """The changes that the database lacks are made again from the packs; a record above a gap is moved aside."""
    for each in (line := history.line(4)):
        push(site.repository(), history, [each], {MAIN: each})
    for number in gone:
        assert site.database().delete("a/b", number)
    server = site.repository()
    while changes := (findings := find(server.folder)).changes:
        recovery.restore(server, findings, changes)
    check_whole(site.repository(), history)
    assert refs_of(server) == {MAIN: line[3]}
    assert find(server.folder).changes == []


def test_tables_of_another_release_or_store(site: Site, postgres: Postgres) -> None:
    """Foreign tables are never replaced. A store that cannot be marked gets no tables."""
    with pytest.raises(Unsupported, match="logs of the store one"):
        site.database("another").numbers("a")
    with psycopg.connect(site.address) as connection:
        connection.execute("UPDATE smartserver_cluster SET schema = 2")
    with pytest.raises(Unsupported, match="version 2 of the tables"):
        site.database().numbers("a")
    with psycopg.connect(site.address) as connection:
        connection.execute("DELETE FROM smartserver_cluster")
    with pytest.raises(Unsupported, match="version 0 of the tables"):
        site.database().numbers("a")
    with pytest.raises(TransportFailed, match="has the tables of a store already"), create_tables(site.address, "one"):
        pass
    address = postgres.database()
    for _ in range(2):
        with pytest.raises(InterruptedError), create_tables(address, "one"):
            raise InterruptedError
