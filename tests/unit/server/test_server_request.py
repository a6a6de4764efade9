"""server.request: steps of a request in order, never two at once, on any executor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from dialogs import Dialog, Lanes, Served, SteppedExecutor

from smartserver.server.executor import NOBODY, Executor, InlineExecutor, Lane
from smartserver.server.fair import Client
from smartserver.server.request import ServedRequest
from smartserver.server.work import Step

T = TypeVar("T")


def served_by(executor: Executor) -> ServedRequest:
    return ServedRequest(Dialog(Served().site, executor=executor).session, 1)


def test_steps_run_in_order_and_one_at_a_time() -> None:
    executor = SteppedExecutor()
    request = served_by(executor)
    told: list[object] = []
    for number in range(3):
        request._do(Step(Lane.QUICK, apart=lambda number=number: number, then=told.append))  # type: ignore[misc]
        assert len(executor.waiting) == 1
    executor.run_all()
    assert told == [0, 1, 2]


def test_two_requests_do_not_wait_for_each_other() -> None:
    executor = SteppedExecutor()
    told: list[str] = []
    for name in "ab":
        request = served_by(executor)
        request._do(Step(Lane.QUICK, then=lambda _, name=name: told.append(name)))  # type: ignore[misc]
        request._do(Step(Lane.QUICK, then=lambda _, name=name: told.append(name)))  # type: ignore[misc]
    assert len(executor.waiting) == 2
    executor.run_all()
    assert told == ["a", "b", "a", "b"]


def test_a_step_begins_after_what_was_said_of_the_one_before() -> None:
    request = served_by(InlineExecutor())
    told: list[str] = []

    def first(_: object) -> None:
        told.append("first is done")
        request._do(Step(Lane.QUICK, apart=lambda: told.append("second"), then=lambda _: told.append("second is done")))
        told.append("first has said so")

    request._do(Step(Lane.QUICK, apart=lambda: told.append("first"), then=first))
    assert told == ["first", "first is done", "first has said so", "second", "second is done"]


def test_many_steps_at_once_do_not_nest() -> None:
    """An executor that finishes before `run` returns costs no stack, however many steps follow each other."""
    count = 10 * sys.getrecursionlimit()
    request = served_by(InlineExecutor())
    told: list[object] = []

    def each(number: object) -> None:
        assert isinstance(number, int)
        told.append(number)
        if number + 1 < count:
            request._do(Step(Lane.QUICK, apart=lambda: number + 1, then=each))

    request._do(Step(Lane.QUICK, apart=lambda: 0, then=each))
    assert told == list(range(count))


def test_many_waiting_steps_do_not_nest() -> None:
    """Nor do those that wait behind a slow one, when what follows is done at once."""
    slow, inline = SteppedExecutor(), InlineExecutor()
    told: list[object] = []

    class Mixed(SteppedExecutor):
        """Only its first work has to wait."""

        def run(
            self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Client = NOBODY
        ) -> None:
            (inline if slow.waiting or told else slow).run(work, done)

    request = served_by(Mixed())
    for number in range(10 * sys.getrecursionlimit()):
        request._do(Step(Lane.QUICK, apart=lambda number=number: number, then=told.append))  # type: ignore[misc]
    assert told == []
    slow.run_all()
    assert told == list(range(10 * sys.getrecursionlimit()))


def test_the_lane_is_passed_on() -> None:
    executor = Lanes()
    request = served_by(executor)
    request._do(Step(Lane.QUICK))
    request._do(Step(Lane.LONG))
    executor.run_all()
    assert executor.lanes == [Lane.QUICK, Lane.LONG]
