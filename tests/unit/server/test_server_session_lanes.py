"""server.session, server.request: what runs in which lane, and what is done for a connection counts until its end."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeVar

import msgspec
import pytest
from calls import calls_of
from dialogs import Dialog, Lanes, Served, SteppedExecutor, message
from held_memory import RESULT_TIMES, TABLE
from session_calls import BODY, INSERT, PING, PULL, code, set_ref
from traced_memory import traced

from smartserver.errors import Cancelled
from smartserver.records.browse import LogSelector, encode_selector
from smartserver.server import request
from smartserver.server.context import RequestContext
from smartserver.server.executor import NOBODY, Executor, InlineExecutor, Lane
from smartserver.server.fair import Tenant
from smartserver.server.request import ServedRequest
from smartserver.server.session import CANCELLED_HIGH, Session
from smartserver.server.work import RequestWork, Task
from smartserver.store.browse import ContentBody
from smartserver.store.upload import Upload
from smartserver.verbs.declare import AnyVerb, Arguments, Result
from smartserver.verbs.map_update import EntryOutcome, Verdict
from smartserver.verbs.repository_read import ReadRequest, repository_read
from smartserver.verbs.repository_stats import StatsRequest, repository_stats
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.wire.events import Body, Cancel, End
from smartserver.wire.messages import Failure, Reply, RequestFlag

VERIFY: tuple[AnyVerb, Arguments] = (repository_verify, VerifyRequest())
STATS: tuple[AnyVerb, Arguments] = (repository_stats, StatsRequest())


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


@pytest.fixture
def dialog(served: Served, lanes: Lanes) -> Dialog:
    return Dialog(served.site, executor=lanes)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([PING], [Lane.QUICK]),
        ([PULL], [Lane.QUICK] * 3),  # The plan, the body, and that this was all of it.
        ([VERIFY], [Lane.LONG]),
        ([PULL, VERIFY], [Lane.LONG, Lane.QUICK, Lane.QUICK]),
        ([STATS] * request.MANY_CALLS, [Lane.QUICK]),
        ([STATS] * (request.MANY_CALLS + 1), [Lane.CONTENT]),
    ],
)
def test_reads(dialog: Dialog, lanes: Lanes, calls: list[tuple[AnyVerb, Arguments]], expected: list[Lane]) -> None:
    number = dialog.begin(message(*calls))
    lanes.run_all()
    assert code(dialog.answer(number)) == "ok"
    assert lanes.lanes == expected


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_put_together_is_read_apart_and_no_longer_than_it_is_wanted(
    dialog: Dialog, lanes: Lanes, line: list[bytes], leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[type[BaseException]] = []
    read = ContentBody.read

    def noted(reader: ContentBody, size: int) -> bytes:
        if leaves:
            dialog.send(Cancel(number))
        try:
            return read(reader, size)
        except Exception as wrong:
            ended.append(type(wrong))
            raise

    monkeypatch.setattr(ContentBody, "read", noted)
    number = dialog.begin(message((repository_read, ReadRequest(encode_selector(LogSelector())))))
    lanes.run_all()
    assert code(dialog.answer(number)) == ("cancelled" if leaves else "ok")
    assert lanes.lanes == [Lane.QUICK, *[Lane.CONTENT] * (1 if leaves else 2)]
    assert ended == [Cancelled] * leaves


def test_a_cancelled_read_runs_no_further_call(
    dialog: Dialog, lanes: Lanes, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = 0
    run = RequestContext.run

    def noted(context: RequestContext, verb: AnyVerb, arguments: Arguments) -> Result:
        nonlocal ran
        result = run(context, verb, arguments)
        ran += 1
        dialog.send(Cancel(number))
        return result

    monkeypatch.setattr(RequestContext, "run", noted)
    number = dialog.begin(message(*[STATS] * 3))
    lanes.run_all()
    assert code(dialog.answer(number)) == "cancelled"
    assert ran == 1


def test_a_push_is_checked_and_made_apart_from_reads(
    dialog: Dialog, lanes: Lanes, served: Served, line: list[bytes]
) -> None:
    number = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    body = served.history.body(line[4:6])
    dialog.send(Body(number, body[:100]), Body(number, body[100:]), End(number, 2, len(body)))
    lanes.run_all()
    assert code(dialog.answer(number)) == "ok"
    assert lanes.lanes == [Lane.BODY, Lane.BODY, Lane.COMMIT, Lane.UPKEEP]


def test_cancelled_requests_that_wait_for_a_thread_stop_the_reading(dialog: Dialog, lanes: Lanes) -> None:
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
    assert len(lanes.waiting) == asked
    while lanes.waiting:
        lanes.step()
    assert dialog.reading
    assert dialog.session._backlog == 0
    assert dialog.session._working == set()


def test_a_cancelled_request_that_waits_holds_nothing(
    dialog: Dialog, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = calls_of(monkeypatch, RequestContext, "__init__", lambda context, *_, **__: weakref.ref(context))
    number = dialog.begin(message(VERIFY))
    assert made[0]() is not None
    dialog.send(Cancel(number))
    gc.collect()
    assert made[0]() is None
    lanes.run_all()
    assert code(dialog.answer(number)) == "cancelled"


def test_what_a_request_holds_counts_until_its_work_has_ended(dialog: Dialog, lanes: Lanes) -> None:
    number = dialog.begin(message(VERIFY, PING))
    counted = dialog.session._backlog
    assert counted >= request.REQUEST_COST + 2 * request.CALL_COST
    dialog.send(Cancel(number))
    assert dialog.session._backlog == counted
    lanes.run_all()
    assert dialog.session._backlog == 0


def test_work_for_a_lost_connection_ends_before_it_begins(
    dialog: Dialog, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the rest of a body looked at: one piece of it was given to a thread."""
    taken: list[bytes] = []
    monkeypatch.setattr(RequestWork, "take", lambda work, chunk: taken.append(chunk))
    number = dialog.begin(message(INSERT, flags=RequestFlag.BODY))
    for _ in range(5):
        dialog.send(Body(number, b"x" * 100))
    dialog.session.connection_lost()
    assert len(lanes.waiting) == 1
    lanes.run_all()
    assert taken == []


def answer(dialog: Dialog, lanes: Lanes) -> Failure | Reply | None:
    number = dialog.begin(message(PULL))
    lanes.run_all()
    return dialog.answer(number)


def test_a_walk_over_the_graph_that_is_too_long_is_refused(
    dialog: Dialog, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("STEPS", "STEPS_OF_STORED", "STEPS_OF_BYTE"):
        assert code(answer(dialog, lanes)) == "ok"
        monkeypatch.setattr(f"smartserver.store.allowance.{limit}", 0)
    assert code(answer(dialog, lanes)) == "limit-exceeded"


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


MOST = 6
"""Calls from the event of a frame to `Upload.write`, that one included."""


def calls_since(frame: FrameType | None) -> list[str]:
    """The functions from `Session._handle` to a frame."""
    names: list[str] = []
    while frame is not None and frame.f_code is not Session._handle.__code__:
        names.insert(0, frame.f_code.co_qualname)
        frame = frame.f_back
    assert frame is not None
    return names


def test_a_chunk_reaches_the_store_in_few_calls(
    served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[str]] = []
    write = Upload.write

    def traced(upload: Upload, content: bytes) -> None:
        found.append([*calls_since(sys._getframe(1)), "Upload.write"])
        write(upload, content)

    monkeypatch.setattr(Upload, "write", traced)
    request = message(INSERT, set_ref(line[5]), flags=BODY)
    assert code(Dialog(served.site).ask(request, served.history.body(line[4:6]), 2)) == "ok"
    assert found
    assert all(len(calls) <= MOST for calls in found), found


def test_the_documentation_shows_the_table() -> None:
    page = Path(__file__).parents[3] / "doc/howto/run_a_server.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    start = lines.index(TABLE[0].row)
    assert lines[start : start + len(TABLE)] == [row.row for row in TABLE]
    assert not lines[start + len(TABLE)]


def test_a_result_takes_some_times_its_bytes() -> None:
    with traced() as memory:
        encoded = msgspec.msgpack.encode([EntryOutcome(Verdict.DONE) for _ in range(20_000)])
    assert memory.peak < RESULT_TIMES * len(encoded)
