"""server.executor, server.threads: work elsewhere, whose end is told where it was asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from smartserver.server import threads
from smartserver.server.executor import Lane
from smartserver.server.fair import Tenant
from smartserver.server.threads import THREADS, ThreadExecutor

# -- threads


class Main:
    """The thread that moves the bytes, as far as an executor knows it."""

    def __init__(self) -> None:
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()

    def turn(self) -> None:
        """Make the next call, when there is one."""
        self.calls.get(timeout=30)()


@pytest.mark.parametrize(
    ("slow", "other"),
    [*[(slow, Lane.QUICK) for slow in (Lane.CONTENT, Lane.COMMIT, Lane.LONG, Lane.UPKEEP)], (Lane.LONG, Lane.UPKEEP)],
)
def test_work_that_waits_does_not_delay_that_of_another_lane(slow: Lane, other: Lane) -> None:
    main = Main()
    executor = ThreadExecutor(main.calls.put)
    go = threading.Event()
    told: list[str] = []
    for _ in range(40):
        executor.run(lambda: go.wait(30), lambda _: told.append("slow"), slow)
    executor.run(lambda: None, lambda _: told.append("other"), other)
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

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    told: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(THREADS[Lane.UPKEEP]):
            with pytest.raises(RuntimeError, match="can't start"):
                executor.run(lambda: "refused", told.append, Lane.UPKEEP)
    executor.run(lambda: "done", told.append, Lane.UPKEEP)
    main.turn()
    executor.stop()
    assert told == ["done"]


def test_one_address_leaves_threads_to_others() -> None:
    main = Main()
    executor = ThreadExecutor(main.calls.put)
    go = threading.Event()
    told: list[str] = []
    for _ in range(10):
        busy = Tenant("192.0.2.1")
        for _ in range(4):
            executor.run(lambda: go.wait(30), lambda _: told.append("busy"), Lane.QUICK, busy)
    executor.run(lambda: None, lambda _: told.append("other"), Lane.QUICK, Tenant("192.0.2.2"))
    main.turn()
    assert told == ["other"]
    go.set()
    for _ in range(40):
        main.turn()
    assert told == ["other", *["busy"] * 40]
    executor.stop()
