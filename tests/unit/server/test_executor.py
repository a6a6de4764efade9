"""server.executor, threads, fair: work elsewhere, whose end is told where it was asked for; addresses take turns."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest
from calls import raising

from smartserver.server import threads
from smartserver.server.executor import Lane
from smartserver.server.fair import FairQueue, Tenant
from smartserver.server.threads import THREADS, ThreadExecutor


class Main:
    """The thread that moves the bytes, as far as an executor knows it."""

    def __init__(self) -> None:
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()

    def turn(self) -> None:
        """Make the next call, when there is one."""
        self.calls.get(timeout=30)()


@pytest.mark.parametrize(
    ("slow", "other", "address"),
    [
        *[(slow, Lane.QUICK, "192.0.2.1") for slow in (Lane.CONTENT, Lane.COMMIT, Lane.LONG, Lane.UPKEEP)],
        (Lane.LONG, Lane.UPKEEP, "192.0.2.1"),
        (Lane.QUICK, Lane.QUICK, "192.0.2.2"),
    ],
)
def test_work_that_waits_does_not_delay_that_of_another_lane_or_address(slow: Lane, other: Lane, address: str) -> None:
    main = Main()
    executor = ThreadExecutor(main.calls.put)
    go = threading.Event()
    told: list[str] = []
    for _ in range(40):
        executor.run(lambda: go.wait(30), lambda _: told.append("slow"), slow, Tenant("192.0.2.1"))
    executor.run(lambda: None, lambda _: told.append("other"), other, Tenant(address))
    main.turn()
    assert told == ["other"]
    go.set()
    for _ in range(40):
        main.turn()
    assert told == ["other", *["slow"] * 40]
    executor.stop()


def test_stopping_waits_for_what_runs_and_begins_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    main = Main()
    executor = ThreadExecutor(main.calls.put)
    started, go, stopped = threading.Semaphore(0), threading.Event(), threading.Event()
    ran: list[int] = []
    stop_pool = threads._Pool.stop

    def stop(pool: threads._Pool) -> None:
        stop_pool(pool)
        if pool is executor._pools[Lane.UPKEEP]:
            stopped.set()

    monkeypatch.setattr(threads._Pool, "stop", stop)

    def work() -> None:
        started.release()
        go.wait(30)
        ran.append(1)

    for _ in range(10):
        executor.run(work, lambda _: None, Lane.LONG, Tenant())
    for _ in range(THREADS[Lane.LONG]):
        assert started.acquire(timeout=30)
    assert not executor.stopping
    stopping = threading.Thread(target=executor.stop)
    stopping.start()
    assert stopped.wait(30)  # What waits for a thread is forgotten, or would be run now.
    assert executor.stopping
    go.set()
    stopping.join(30)
    assert not stopping.is_alive()
    assert len(ran) == THREADS[Lane.LONG]
    with pytest.raises(RuntimeError):
        executor.run(lambda: None, lambda _: None)


def test_a_job_that_raises_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    """More of them than the lane has threads: what comes after is done, and the log names each."""
    main = Main()
    executor = ThreadExecutor(main.calls.put)

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    for _ in range(THREADS[Lane.LONG] + 1):
        executor.run(fail, lambda _: None, Lane.LONG, Tenant())
    told: list[str] = []
    executor.run(lambda: "done", told.append, Lane.LONG, Tenant())
    main.turn()
    assert told == ["done"]
    executor.stop()
    logged = [record for record in caplog.records if "in a job of lane" in record.message]
    assert len(logged) == THREADS[Lane.LONG] + 1
    assert all(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in logged)


def test_a_thread_that_cannot_be_started_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    main = Main()
    executor = ThreadExecutor(main.calls.put)

    told: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
        for _ in range(THREADS[Lane.UPKEEP]):
            with pytest.raises(RuntimeError, match="can't start"):
                executor.run(lambda: "refused", told.append, Lane.UPKEEP)
    executor.run(lambda: "done", told.append, Lane.UPKEEP)
    main.turn()
    executor.stop()
    assert told == ["done"]


def fill(queue: FairQueue[str], client: Tenant, name: str, count: int) -> None:
    for number in range(count):
        queue.put(client, f"{name}{number}")


def begun(queue: FairQueue[str]) -> list[str]:
    """The jobs that may begin now."""
    names: list[str] = []
    while (found := queue.take()) is not None:
        names.append(found[1])
    return names


def test_alone_an_address_gets_half_of_the_threads() -> None:
    queue: FairQueue[str] = FairQueue(8)
    for number in range(10):
        fill(queue, Tenant("a"), f"{number}-", 2)
    assert begun(queue) == ["0-0", "1-0", "2-0", "3-0"]
    fill(queue, Tenant("b"), "b", 20)
    assert begun(queue) == ["b0", "b1"]
    fill(queue, Tenant("c"), "c", 20)
    assert begun(queue) == ["c0"]


@pytest.mark.parametrize("threads", [1, 2, 4, 8, 16])
def test_a_newcomer_finds_a_thread_or_has_its_turn_after_one_job_of_each_address(threads: int) -> None:
    queue: FairQueue[str] = FairQueue(threads)
    busy = Tenant("a")
    fill(queue, busy, "a", 100)
    assert len(begun(queue)) == max(1, threads // 2)
    fill(queue, Tenant("b"), "b", 1)
    if threads == 1:
        for turn in ([], ["a1"], ["b0"]):
            assert begun(queue) == turn
            queue.ended(busy)
    else:
        assert begun(queue) == ["b0"]


def test_addresses_take_turns_and_so_do_their_connections() -> None:
    queue: FairQueue[str] = FairQueue(1)
    first, second, other = Tenant("a"), Tenant("a"), Tenant("b")
    fill(queue, first, "first", 3)
    fill(queue, second, "second", 2)
    fill(queue, other, "other", 2)
    order: list[str] = []
    while (found := queue.take()) is not None:
        order.append(found[1])
        assert queue.take() is None
        queue.ended(found[0])
    assert order == ["first0", "other0", "second0", "other1", "first1", "second1", "first2"]
    assert not queue._running
    assert not queue._waiting


def test_connections_without_an_address_share_with_nobody() -> None:
    queue: FairQueue[str] = FairQueue(4)
    for name in "abcdef":
        fill(queue, Tenant(), name, 2)
    assert begun(queue) == ["a0", "b0", "c0", "d0"]
