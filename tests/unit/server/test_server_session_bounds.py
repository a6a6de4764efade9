"""server.session, server.request: what is done for a connection counts until it has ended, cancelled or not."""

from __future__ import annotations

import gc
import weakref

import pytest
from builders import MAIN
from dialogs import Dialog, Lanes, Served, message
from session_calls import INSERT, PING, code

from smartserver.server import request
from smartserver.server.context import RequestContext
from smartserver.server.executor import Lane
from smartserver.server.session import CANCELLED_HIGH
from smartserver.server.work import RequestWork
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.repository_stats import StatsRequest, repository_stats
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.wire.events import Body, Cancel
from smartserver.wire.messages import Failure, Reply, RequestFlag

VERIFY = (repository_verify, VerifyRequest())
PULL = (repository_pull, PullRequest(refs=[MAIN]))


@pytest.fixture
def executor() -> Lanes:
    return Lanes()


@pytest.fixture
def served() -> Served:
    served = Served()
    line = served.history.line(4)
    served.push(line, {MAIN: line[-1]})
    return served


@pytest.fixture
def dialog(served: Served, executor: Lanes) -> Dialog:
    return Dialog(served.site, executor=executor)


def test_cancelled_requests_that_wait_for_a_thread_stop_the_reading(dialog: Dialog, executor: Lanes) -> None:
    """Else two busy threads and requests that are cancelled at once make a server hold gigabytes."""
    asked = 0
    while dialog.reading:
        number = dialog.begin(message(VERIFY, PULL))
        dialog.send(Cancel(number))
        assert code(dialog.answer(number)) == "cancelled"
        asked += 1
        assert asked <= CANCELLED_HIGH + 1
    assert asked == CANCELLED_HIGH + 1
    assert dialog.session.idle
    assert len(executor.waiting) == asked
    while executor.waiting:
        executor.step()
    assert dialog.reading
    assert dialog.session._backlog == 0
    assert dialog.session._working == set()


def test_a_cancelled_request_that_waits_holds_nothing(
    dialog: Dialog, executor: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[RequestContext]] = []
    begin = RequestContext.__init__

    def noted(context: RequestContext, *arguments: object, **more: object) -> None:
        made.append(weakref.ref(context))
        begin(context, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(RequestContext, "__init__", noted)
    number = dialog.begin(message(VERIFY))
    assert made[0]() is not None
    dialog.send(Cancel(number))
    gc.collect()
    assert made[0]() is None
    executor.run_all()
    assert code(dialog.answer(number)) == "cancelled"


def test_what_a_request_holds_counts_until_its_work_has_ended(dialog: Dialog, executor: Lanes) -> None:
    number = dialog.begin(message(VERIFY, PING))
    counted = dialog.session._backlog
    assert counted >= request.REQUEST_COST + 2 * request.CALL_COST
    dialog.send(Cancel(number))
    assert dialog.session._backlog == counted
    executor.run_all()
    assert dialog.session._backlog == 0


def test_work_for_a_lost_connection_ends_before_it_begins(
    dialog: Dialog, executor: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the rest of a body looked at: one piece of it was given to a thread."""
    taken: list[bytes] = []
    monkeypatch.setattr(RequestWork, "take", lambda work, chunk: taken.append(chunk))
    number = dialog.begin(message(INSERT, flags=RequestFlag.BODY))
    for _ in range(5):
        dialog.send(Body(number, b"x" * 100))
    dialog.session.connection_lost()
    assert len(executor.waiting) == 1
    executor.run_all()
    assert taken == []


def test_a_request_of_many_calls_runs_apart_from_quick_ones(dialog: Dialog, executor: Lanes) -> None:
    for calls in (1, request.MANY_CALLS, request.MANY_CALLS + 1):
        dialog.begin(message(*[(repository_stats, StatsRequest())] * calls))
    executor.run_all()
    assert executor.lanes == [Lane.QUICK, Lane.QUICK, Lane.CONTENT]


def answer(dialog: Dialog, executor: Lanes) -> Failure | Reply | None:
    number = dialog.begin(message(PULL))
    executor.run_all()
    return dialog.answer(number)


def test_a_walk_over_the_graph_that_is_too_long_is_refused(
    dialog: Dialog, executor: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("STEPS", "STEPS_OF_STORED", "STEPS_OF_BYTE"):
        assert code(answer(dialog, executor)) == "ok"
        monkeypatch.setattr(f"smartserver.store.allowance.{limit}", 0)
    assert code(answer(dialog, executor)) == "limit-exceeded"
