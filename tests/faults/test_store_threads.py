"""Many threads push to one repository at once, through one object or several: what was acknowledged is there."""

from __future__ import annotations

import contextlib
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
def test_all_push(storage: Transport, shared: bool) -> None:
    """Each thread pushes onto the ref's tip as it last saw it, and to its own ref. If refused, it looks again. Nothing
    acknowledged is ever lost."""
    history, one = History(), PackRepository(storage, "project")
    (root,) = history.line(1)
    push(one, history, [root], {MAIN: root})
    making = threading.Lock()
    acknowledged: list[bytes] = []
    ready = threading.Barrier(THREADS)

    def work(number: int) -> bytes:
        repository = one if shared else PackRepository(storage, "project")
        ready.wait()
        for left in range(PUSHES):
            while True:
                tip = refs_of(repository)[MAIN]
                with making:  # The history is no more for several threads than a client's own repository.
                    (new,) = history.line(1, tip, f"{number} {left}")
                    history.body([new])
                with contextlib.suppress(DivergedBranches):
                    push(repository, history, [new], {MAIN: new, b"refs/heads/%d" % number: new}, force=False)
                    break
            acknowledged.append(new)
            repository.repack_if_needed()
        return new

    with ThreadPoolExecutor(THREADS) as pool:
        tips = list(pool.map(work, range(THREADS)))
    repository = PackRepository(storage, "project")
    snapshot = check_whole(repository, history)
    refs, transaction = refs_of(repository), repository.begin()
    assert [refs[b"refs/heads/%d" % number] for number in range(THREADS)] == tips
    assert len(acknowledged) == len(set(acknowledged)) == THREADS * PUSHES
    assert all(transaction.is_ancestor(each, refs[MAIN]) for each in acknowledged)
    assert snapshot.graph.count == 1 + THREADS * PUSHES
    assert len(snapshot.packs) < 20
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
