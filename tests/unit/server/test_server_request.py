"""server.request: steps of a request in order, never two at once, on any executor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from dialogs import Dialog, Served, SteppedExecutor

from smartserver.server.executor import NOBODY, Executor, InlineExecutor, Lane
from smartserver.server.fair import Tenant
from smartserver.server.request import ServedRequest
from smartserver.server.work import Task

T = TypeVar("T")


def served_by(executor: Executor) -> ServedRequest:
    return ServedRequest(Dialog(Served().site, executor=executor).session, 1)


def test_many_steps_at_once_do_not_nest() -> None:
    """An executor that finishes before `run` returns costs no stack, however many steps follow each other."""
    count = 10 * sys.getrecursionlimit()
    request = served_by(InlineExecutor())
    told: list[object] = []

    def each(number: object) -> None:
        assert isinstance(number, int)
        told.append(number)
        if number + 1 < count:
            request._do(Task(Lane.QUICK, lambda: number + 1, then=each))

    request._do(Task(Lane.QUICK, lambda: 0, then=each))
    assert told == list(range(count))


def test_many_waiting_steps_do_not_nest() -> None:
    """Nor do those that wait behind a slow one, when what follows is done at once."""
    slow, inline = SteppedExecutor(), InlineExecutor()
    told: list[object] = []

    class Mixed(SteppedExecutor):
        """Only its first work has to wait."""

        def run(
            self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
        ) -> None:
            (inline if slow.waiting or told else slow).run(work, done)

    request = served_by(Mixed())
    for number in range(10 * sys.getrecursionlimit()):
        request._do(Task(Lane.QUICK, lambda number=number: number, then=told.append))  # type: ignore[misc]
    assert told == []
    slow.run_all()
    assert told == list(range(10 * sys.getrecursionlimit()))
