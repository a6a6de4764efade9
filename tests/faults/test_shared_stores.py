"""A repository in a bucket, or with its log in a database: each call to these fails, or its answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, push, refs_of, request_id
from needs import needs
from obstore.store import MemoryStore
from postgres import Postgres

from smartserver.errors import CorruptFile, OutcomeUnknown
from smartserver.records.model import Tip
from smartserver.server import deliveries
from smartserver.server.hook_rules import Hook, HookText
from smartserver.server.site import RepositoryLocation
from smartserver.server.store_errors import user_error
from smartserver.store import checkpoint
from smartserver.store.format import IMMUTABLE
from smartserver.store.postgres import Database, create_tables
from smartserver.store.postgres_log import PostgresLog
from smartserver.store.prune import prune
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.base import Transport
from transports.decorators.cached import CachedTransport, CacheFolder
from transports.decorators.counted import CountedTransport
from transports.errors import CodedError, TransportFailed
from transports.s3 import S3Transport
from transports.s3_bucket import Bucket

pytestmark = needs("initdb", "postgres")

NEW = b"refs/heads/new"
AHEAD = 3
"""Pushes before what is tried; a checkpoint is due after fewer."""

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


def ref(repository: PackRepository, tip: bytes) -> None:
    def plan(transaction: Transaction) -> bytes:
        transaction.set_ref(NEW, (Tip(tip),))
        return b""

    repository.commit(request_id(), 0, "user", plan)


def fetch(repository: PackRepository, first: int) -> None:
    """Read all revisions from one on."""
    snapshot = repository.snapshot()
    reader = snapshot.read_ranges(((first, snapshot.graph.count),))
    while reader.read(1 << 20):
        pass


def tidied(repository: PackRepository) -> None:
    repository.save_log()
    repository.collect_garbage_files()


KINDS = ["bucket", "with_database"]
WORKS = ["push", "ref", "creation", "deletion", "repack", "tidying", "prune"]


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
    monkeypatch.setattr(checkpoint, "FEW", 2)
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
        line = history.line(AHEAD)
        repository = PackRepository(transport, "a/b")
        push(repository, history, line[:1], {MAIN: line[0]})
        assert deliveries.deliver(repository, hook, {}, b"one")
        for tip in line[1:]:
            push(repository, history, [tip], {MAIN: tip})
        told.clear()
        breaking.begin(at, is_done=is_done)
        with suppress(CodedError):
            deliveries.deliver(repository, hook, {}, b"one")
        broke, breaking.left = breaking.left <= 0, 0
        assert deliveries.deliver(PackRepository(transport, "a/b"), hook, {}, b"one")
        seen = [each for (each,) in told]
        assert list(dict.fromkeys(seen)) == [tip.hex() for tip in line[1:]], at
    assert at > 10


CALLS = {"nothing": (2, 1), "fetch": (9, 5), "push": (9, 6), "ref": (4, 2), "clone": (18, 13)}
"""Calls at most to a bucket, and with the log in a database; doc/design/0034-shared-stores.md has them."""


@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_a_server_with_copies(
    kind: str, breaking: Breaking, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
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

    one, other = server(), server()
    for each in line[:3]:
        push(one, history, [each], {MAIN: each})
    found = {"clone": calls(lambda: fetch(other, 0)), "nothing": calls(other.look)}
    found["push"] = calls(lambda: push(one, history, line[3:4], {MAIN: line[3]}))
    found["fetch"] = calls(lambda: fetch(other, 3))
    found["ref"] = calls(lambda: ref(one, line[0]))
    assert {name: number for name, number in found.items() if number > CALLS[name][KINDS.index(kind)]} == {}, found


def test_a_copy_that_is_damaged_below_a_server_is_fetched_again(bucket: Make, tmp_path: Path) -> None:
    history, copies = History(), CacheFolder(tmp_path, 1 << 30)
    transport = CountedTransport(CachedTransport(bucket(), copies, IMMUTABLE))
    server = PackRepository(transport, "a/b")
    for tip in history.line(3):
        push(server, history, [tip], {MAIN: tip})
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
    for tip in history.line(3):
        push(server, history, [tip], {MAIN: tip})
    for name in transport.list_directory("a/b/packs"):
        transport.delete(f"a/b/packs/{name}")
    assert server.snapshot().graph.count == 3
    assert "3 of 3 packs cannot be checked" in server.verify().problems[0]


def attempt(transport: Transport, work: str, at: int, breaking: Breaking, *, is_done: bool) -> bool:
    """Do a work of which one call breaks; False where it makes fewer."""
    history, clock = History(), Clock()
    line = history.line(AHEAD + 1)
    repository = PackRepository(transport, "a/b", clock=clock, randomness=Repeatable())
    for tip in line[:AHEAD] if work != "creation" else ():
        push(repository, history, [tip], {MAIN: tip})
    gone = history.commit({"gone": b"x\n"}, line[:1])
    if work == "prune":
        push(repository, history, [gone], {NEW: gone})
        push(repository, history, [], {NEW: None})
    other = PackRepository(transport, "a/b", clock=clock, randomness=Repeatable(1))
    works: dict[str, tuple[Callable[[], object], dict[bytes, bytes] | None]] = {
        "push": (lambda: push(repository, history, line[AHEAD:], {MAIN: line[AHEAD]}), {MAIN: line[AHEAD]}),
        "ref": (lambda: ref(repository, line[0]), {MAIN: line[AHEAD - 1], NEW: line[0]}),
        "creation": (lambda: push(repository, history, line, {MAIN: line[AHEAD]}), {MAIN: line[AHEAD]}),
        "deletion": (lambda: repository.delete(request_id(), 0, "user"), None),
        "repack": (repository.repack, {MAIN: line[AHEAD - 1]}),
        "tidying": (lambda: tidied(repository), {MAIN: line[AHEAD - 1]}),
        "prune": (lambda: prune(repository), {MAIN: line[AHEAD - 1]}),
    }
    do, new = works[work]
    old = None if work == "creation" else {MAIN: line[AHEAD - 1]}
    breaking.begin(at, is_done=is_done)
    try:
        do()
        expected = [new]
    except OutcomeUnknown:
        expected = [old, new]
    except CodedError:
        expected = [old]
    broke, breaking.left = breaking.left <= 0, 0
    found = refs_of(other) if other.exists() else None
    assert found in expected, at
    if found is not None:
        check_whole(other, history)
        if work != "deletion":  # What was asked for can be asked for again.
            do()
            assert refs_of(other) == new, at
        assert other.snapshot().ordinal(gone) is None, at
        check_whole(other, history)
    return broke
