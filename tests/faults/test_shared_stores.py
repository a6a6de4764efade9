"""A repository in a bucket, or with its log in a database: each call to these fails, or its answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, push
from changes import change, push_each
from needs import needs
from obstore.store import MemoryStore
from operations import OPERATIONS, check_answer, state_of
from postgres import Postgres

from smartserver.errors import CorruptFile
from smartserver.records.model import Tip
from smartserver.server import deliveries
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.site import RepositoryLocation
from smartserver.server.store_errors import user_error
from smartserver.store import checkpoint
from smartserver.store.format import IMMUTABLE
from smartserver.store.postgres import Database, create_tables
from smartserver.store.postgres_log import PostgresLog
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.decorators.cached import CachedTransport, CacheFolder
from transports.decorators.counted import CountedTransport
from transports.errors import CodedError, TransportFailed
from transports.s3 import S3Transport
from transports.s3_bucket import Bucket

pytestmark = needs("initdb", "postgres")

Result = TypeVar("Result")
Make = Callable[[], Transport]


class Breaking:
    """One call fails, or is done and its answer is lost; calls are counted from `begin` on."""

    def __init__(self) -> None:
        self.left, self.is_done = 0, False

    def begin(self, at: int, *, is_done: bool) -> None:
        """From now on; the one with this number breaks."""
        self.left, self.is_done = at, is_done

    def call(self, path: str, ask: Callable[[], Result]) -> Result:
        self.left -= 1
        if self.left:
            return ask()
        if self.is_done:
            ask()
        raise TransportFailed(path, "it broke")


@pytest.fixture
def breaking() -> Breaking:
    return Breaking()


@pytest.fixture
def bucket(breaking: Breaking, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes buckets in memory, which the library has for tests: the semantics that `transports.s3` relies on are those
    that its own tests find in a real store."""
    call = Bucket.call

    def broken(bucket: Bucket, method: str, path: str, ask: Callable[[], Result]) -> Result:
        return breaking.call(path, lambda: call(bucket, method, path, ask))

    def store(bucket: Bucket, *, once: bool = False) -> MemoryStore:
        return memory[-1]

    memory: list[MemoryStore] = []
    monkeypatch.setattr(Bucket, "call", broken)
    monkeypatch.setattr(Bucket, "store", store)
    # One after the other, so that the same call breaks each time.
    monkeypatch.setattr(Bucket, "all_of", lambda bucket, asks, pool: [ask() for ask in asks])

    def make() -> Transport:
        memory.append(MemoryStore())
        return S3Transport("bucket")

    return make


@pytest.fixture
def with_database(
    bucket: Make, breaking: Breaking, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """The same, with the logs in a database."""
    for name in ("_ask", "_change"):
        inner: Callable[..., object] = getattr(Database, name)

        def broken(self: Database, path: str, *query: object, inner: Callable[..., object] = inner) -> object:
            return breaking.call(path, lambda: inner(self, path, *query))

        monkeypatch.setattr(Database, name, broken)
    database = Database(postgres.address, "faults")

    def make() -> Transport:
        with psycopg.connect(postgres.address) as connection:
            connection.execute("DROP TABLE IF EXISTS smartserver_record, smartserver_file, smartserver_cluster")
        with create_tables(postgres.address, "faults"):
            return PostgresLog(bucket(), database)

    yield make
    database.close()


def fetch(repository: PackRepository, first: int) -> None:
    """Read all revisions from one on."""
    snapshot = repository.snapshot()
    reader = snapshot.read_ranges(((first, snapshot.graph.count),))
    while reader.read(1 << 20):
        pass


KINDS = ["bucket", "with_database"]
WORKS = [
    "push", "move a ref", "create with content", "delete the repository", "repack", "checkpoint and clean", "collect",
    "prune",
]  # fmt: skip


@pytest.mark.usefixtures("early_upkeep")
@pytest.mark.parametrize("is_done", [False, True], ids=["fails", "lost"])
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_call_breaks(
    kind: str,
    work: str,
    is_done: bool,
    breaking: Breaking,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Afterwards another server sees the old or the new state, whole, and the new one if that was the answer."""
    make: Make = request.getfixturevalue(kind)
    monkeypatch.setattr(checkpoint, "FLOOR_AGE", 0.0)
    at = 1
    while attempt(make(), work, at, breaking, is_done=is_done):
        at += 1
    assert at > 1


@pytest.mark.parametrize("is_done", [False, True], ids=["fails", "lost"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_call_of_a_delivery_breaks(
    kind: str, is_done: bool, breaking: Breaking, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver hears of each change, in order, when the server tries again."""
    make: Make = request.getfixturevalue(kind)
    told: list[list[str]] = []

    def tell(hook: Hook, said: dict[str, list[dict[str, list[str]]]], *_: object) -> None:
        told.extend(change["new"] for change in said.get("changes", ()))

    monkeypatch.setattr(deliveries, "tell", tell)
    hook, at, broke = Hook(HookText("**", after=["/receiver"])), 0, True
    while broke:
        at += 1
        transport, history = make(), History()
        line = history.line(3)
        repository = PackRepository(transport, "a/b")
        push(repository, history, line[:1], {MAIN: line[0]})
        assert deliveries.deliver(repository, hook, {}, b"one")
        push_each(repository, history, line[1:])
        told.clear()
        breaking.begin(at, is_done=is_done)
        with suppress(CodedError):
            deliveries.deliver(repository, hook, {}, b"one")
        broke, breaking.left = breaking.left <= 0, 0
        assert deliveries.deliver(PackRepository(transport, "a/b"), hook, {}, b"one")
        seen = [each for (each,) in told]
        assert list(dict.fromkeys(seen)) == [tip.hex() for tip in line[1:]], at
    assert at > 10


CALLS = {
    "creation": (29, 31), "cold": (7, 4), "look": (3, 1), "second push": (10, 6),
    "nothing": (2, 1), "fetch": (9, 5), "push": (9, 6), "ref": (4, 2), "clone": (18, 13),
}  # fmt: skip
"""Calls at most to a bucket, and with the log in a database: without copies, and by a server that has copies;
doc/design/0034-shared-stores.md has them."""


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_a_server(kind: str, breaking: Breaking, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    make: Make = request.getfixturevalue(kind)
    transport, history, folders = make(), History(), count()
    line = history.line(5)

    def server() -> PackRepository:
        copies = CacheFolder(tmp_path / str(next(folders)), 1 << 30)
        return PackRepository(CachedTransport(transport, copies, IMMUTABLE), "a/b")

    def calls(do: Callable[[], object]) -> int:
        breaking.begin(1000, is_done=False)
        do()
        return 1000 - breaking.left

    plain = PackRepository(transport, "team/project")
    found = {"creation": calls(lambda: push_each(plain, history, line[:1]))}
    found["cold"] = calls(PackRepository(transport, "team/project").look)
    found["look"] = calls(plain.look)
    found["second push"] = calls(lambda: push_each(plain, history, line[1:2]))
    one, other = server(), server()
    push_each(one, history, line[:3])
    found |= {"clone": calls(lambda: fetch(other, 0)), "nothing": calls(other.look)}
    found["push"] = calls(lambda: push(one, history, line[3:4], {MAIN: line[3]}))
    found["fetch"] = calls(lambda: fetch(other, 3))
    found["ref"] = calls(lambda: change(one, lambda made: made.set_ref(b"refs/heads/new", (Tip(line[0]),))))
    assert {name: number for name, number in found.items() if number > CALLS[name][KINDS.index(kind)]} == {}, found


def test_a_copy_that_is_damaged_below_a_server_is_fetched_again(bucket: Make, tmp_path: Path) -> None:
    history, copies = History(), CacheFolder(tmp_path, 1 << 30)
    transport = CountedTransport(CachedTransport(bucket(), copies, IMMUTABLE))
    server = PackRepository(transport, "a/b")
    push_each(server, history, history.line(3))
    fetch(server, 0)
    for copy in tmp_path.glob("*/*"):
        content = copy.read_bytes()
        with copy.open("r+b") as file:
            file.write(bytes(each ^ 0xFF for each in content))
    with pytest.raises(CorruptFile) as damaged:
        check_whole(server, history)
    user_error(damaged.value, RepositoryLocation(server, True), "it")
    check_whole(server, history)


def test_a_server_verifies_the_store_and_not_its_copies(bucket: Make, tmp_path: Path) -> None:
    transport, history = bucket(), History()
    copies = CountedTransport(CachedTransport(transport, CacheFolder(tmp_path, 1 << 30), IMMUTABLE))
    server = PackRepository(copies, "a/b")
    push_each(server, history, history.line(3))
    for name in transport.list_directory("a/b/packs"):
        transport.delete(f"a/b/packs/{name}")
    assert server.snapshot().graph.count == 3
    assert "3 of 3 packs cannot be checked" in server.verify().problems[0]


def attempt(transport: Transport, name: str, at: int, breaking: Breaking, *, is_done: bool) -> bool:
    """Do an operation of which one call breaks; False where it makes fewer."""
    history, clock, operation = History(), Clock(), OPERATIONS[name]
    repository, other = (
        PackRepository(transport, "a/b", clock=clock, randomness=Repeatable(seed)) for seed in range(2)
    )
    operation.prepare(repository, history, clock)
    before, after = state_of(PackRepository(transport, "a/b", clock=clock)), operation.after(history)
    error: CodedError | None = None
    breaking.begin(at, is_done=is_done)
    try:
        operation.run(repository, history)
    except CodedError as wrong:
        error = wrong
    broke, breaking.left = breaking.left <= 0, 0
    if check_answer(other, history, error, before, after, at) is not None and after is not None:
        operation.run(repository, history)  # What was asked for can be asked for again.
        assert state_of(other) == after, at
        check_whole(other, history)
    return broke
