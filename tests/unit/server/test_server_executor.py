"""server.executor, server.threads: steps in order, on any executor."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest
from dialogs import SteppedExecutor

from smartserver.server.executor import InlineExecutor, Strand
from smartserver.server.threads import ThreadExecutor


def test_inline_is_now() -> None:
    done: list[int] = []
    executor = InlineExecutor()
    executor.run(lambda: 5, done.append)
    executor.soon(lambda: done.append(6))
    assert done == [5, 6]


def test_a_strand_runs_one_step_at_a_time() -> None:
    stepped = SteppedExecutor()
    strand = Strand(stepped)
    events: list[str] = []

    def step(name: str) -> None:
        strand.submit(lambda: events.append(f"{name} runs"), lambda _: events.append(f"{name} is done"))

    step("first")
    step("second")
    assert len(stepped.waiting) == 1
    stepped.step()
    assert events == ["first runs", "first is done"]
    step("third")
    stepped.run_all()
    assert events[2:] == ["second runs", "second is done", "third runs", "third is done"]


def test_steps_that_follow_from_steps_do_not_nest() -> None:
    """An executor that finishes at once must not turn a long body into a deep stack."""
    strand = Strand(InlineExecutor())
    count = 0

    def again(_: object) -> None:
        nonlocal count
        count += 1
        if count < 5000:
            strand.submit(lambda: None, again)

    strand.submit(lambda: None, again)
    assert count == 5000


@pytest.fixture
def calls() -> queue.Queue[Callable[[], None]]:
    return queue.Queue()


@pytest.fixture
def threads(calls: queue.Queue[Callable[[], None]]) -> Iterator[ThreadExecutor]:
    executor = ThreadExecutor(calls.put)
    yield executor
    executor.stop()


@pytest.mark.parametrize("long", [False, True])
def test_work_runs_in_a_thread_and_is_reported_in_ours(
    threads: ThreadExecutor, calls: queue.Queue[Callable[[], None]], long: bool
) -> None:
    ours = threading.get_ident()
    seen: list[int] = []

    def done(worker: int) -> None:
        seen.extend((worker, threading.get_ident()))

    threads.run(threading.get_ident, done, long=long)
    calls.get(timeout=60)()
    assert seen[0] != ours
    assert seen[1] == ours


def test_soon(threads: ThreadExecutor, calls: queue.Queue[Callable[[], None]]) -> None:
    seen: list[int] = []
    threads.soon(lambda: seen.append(1))
    assert seen == []
    calls.get(timeout=60)()
    assert seen == [1]


def test_long_work_does_not_delay_short_work(threads: ThreadExecutor, calls: queue.Queue[Callable[[], None]]) -> None:
    release = threading.Event()
    seen: list[str] = []
    for _ in range(20):
        threads.run(lambda: release.wait(60), lambda _: seen.append("long"), long=True)
    threads.run(lambda: None, lambda _: seen.append("short"))
    calls.get(timeout=60)()
    assert seen == ["short"]
    release.set()


def test_stopping_drops_what_waits(calls: queue.Queue[Callable[[], None]]) -> None:
    executor = ThreadExecutor(calls.put)
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait(60)

    for _ in range(5):
        executor.run(work, lambda _: None, long=True)
    begun.wait(60)
    threading.Timer(0.01, release.set).start()
    executor.stop()
    assert calls.qsize() <= 2
    with pytest.raises(RuntimeError):
        executor.run(lambda: None, lambda _: None)
