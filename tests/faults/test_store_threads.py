"""Many threads push to one repository at once, through one object or several: what was acknowledged is there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import MAIN, History, check_whole, push, refs_of
from memory_transport import MemoryTransport

from smartserver.errors import DivergedBranches
from smartserver.store.format import INCOMING
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.local import LocalTransport

THREADS = 4
PUSHES = 12


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Transport:
    if request.param == "memory":
        return MemoryTransport()
    return LocalTransport(str(tmp_path_factory.mktemp("store")))


@pytest.mark.parametrize("shared", [True, False])
def test_a_ref_each(storage: Transport, shared: bool) -> None:
    one = PackRepository(storage, "project")
    histories = [History() for _ in range(THREADS)]
    ready = threading.Barrier(THREADS)

    def work(number: int) -> bytes:
        repository = one if shared else PackRepository(storage, "project")
        history = histories[number]
        line = history.line(PUSHES, None, f"thread {number}")
        ready.wait()
        for each in line:
            push(repository, history, [each], {b"refs/heads/%d" % number: each}, force=False)
            repository.repack_if_needed()
        return line[-1]

    with ThreadPoolExecutor(THREADS) as pool:
        tips = list(pool.map(work, range(THREADS)))
    repository = PackRepository(storage, "project")
    assert refs_of(repository) == {b"refs/heads/%d" % number: tip for number, tip in enumerate(tips)}
    whole = History()
    for history in histories:
        whole.objects |= history.objects
        whole.parents |= history.parents
        whole.introduced |= history.introduced
    snapshot = check_whole(repository, whole)
    assert snapshot.graph.count == THREADS * PUSHES
    assert len(snapshot.packs) < 20
    assert storage.list_directory(f"project/{INCOMING}") == []


def test_one_ref_for_all(storage: Transport) -> None:
    """Each pushes on top of what it last saw; a refused one looks again. Nothing acknowledged is ever lost."""
    history = History()
    (root,) = history.line(1)
    push(PackRepository(storage, "project"), history, [root], {MAIN: root})
    making = threading.Lock()
    acknowledged: list[bytes] = []
    ready = threading.Barrier(THREADS)

    def work(number: int) -> None:
        repository = PackRepository(storage, "project")
        ready.wait()
        left = PUSHES
        while left:
            tip = refs_of(repository)[MAIN]
            with making:  # The history is no more for several threads than a client's own repository.
                (new,) = history.line(1, tip, f"{number} {left}")
                history.body([new])
            try:
                push(repository, history, [new], {MAIN: new}, force=False)
            except DivergedBranches:
                continue
            acknowledged.append(new)
            left -= 1

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    repository = PackRepository(storage, "project")
    check_whole(repository, history)
    transaction = repository.begin()
    tip = refs_of(repository)[MAIN]
    assert len(acknowledged) == len(set(acknowledged)) == THREADS * PUSHES
    assert all(transaction.is_ancestor(each, tip) for each in acknowledged)


def test_the_same_push_from_all(storage: Transport) -> None:
    """All bring the same revisions, to a repository that none finds: it is made once, and each revision stored once."""
    history = History()
    line = history.line(6)
    history.body(line)
    ready = threading.Barrier(THREADS)

    def work(number: int) -> bool:
        repository = PackRepository(storage, "project")
        ready.wait()
        return push(repository, history, line[: 2 + number], {b"refs/heads/%d" % number: line[1 + number]}).changed

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))
    snapshot = check_whole(PackRepository(storage, "project"), history)
    assert snapshot.graph.count == 1 + THREADS
    assert len(snapshot.state.history) == THREADS
    assert storage.list_directory(f"project/{INCOMING}") == []


def test_readers_beside_writers(storage: Transport) -> None:
    history = History()
    line = history.line(30)
    repository = PackRepository(storage, "project")
    push(repository, history, line[:1], {MAIN: line[0]})
    stop = threading.Event()

    def read() -> int:
        reads = 0
        while not stop.is_set() or not reads:
            transaction = repository.begin()
            tip = transaction.refs()[MAIN][0].id
            plan = transaction.plan_pull([tip], [])
            assert plan.segments == line.index(tip) + 1
            assert len(transaction.open_body(plan).read(1 << 30)) == plan.size
            reads += 1
        return reads

    with ThreadPoolExecutor(THREADS) as pool:
        readers = [pool.submit(read) for _ in range(THREADS - 1)]
        try:
            for each in line[1:]:
                push(repository, history, [each], {MAIN: each})
                repository.repack_if_needed()
        finally:
            stop.set()
        assert all(reader.result() for reader in readers)
