"""server.session, server.request: what runs in which lane, so that nothing waits behind what may take long."""

from __future__ import annotations

import pytest
from dialogs import Dialog, Lanes, Served, message
from session_calls import INSERT, PING, PULL, code, set_ref

from smartserver.errors import Cancelled
from smartserver.records.browse import LogSelector, encode_selector
from smartserver.server.context import RequestContext
from smartserver.server.executor import Lane
from smartserver.store.browse import ContentBody
from smartserver.verbs.declare import AnyVerb, Arguments, Result
from smartserver.verbs.repository_read import ReadRequest, repository_read
from smartserver.verbs.repository_stats import StatsRequest, repository_stats
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.wire.events import Body, Cancel, End
from smartserver.wire.messages import RequestFlag

VERIFY: tuple[AnyVerb, Arguments] = (repository_verify, VerifyRequest())


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


@pytest.fixture
def joined(served: Served, lanes: Lanes) -> Dialog:
    return Dialog(served.site, executor=lanes)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([PING], [Lane.QUICK]),
        ([PULL], [Lane.QUICK] * 3),  # The plan, the body, and that this was all of it.
        ([VERIFY], [Lane.LONG]),
        ([PULL, VERIFY], [Lane.LONG, Lane.QUICK, Lane.QUICK]),
    ],
)
def test_reads(joined: Dialog, lanes: Lanes, calls: list[tuple[AnyVerb, Arguments]], expected: list[Lane]) -> None:
    number = joined.begin(message(*calls))
    lanes.run_all()
    assert code(joined.answer(number)) == "ok"
    assert lanes.lanes == expected


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_put_together_is_read_apart_and_no_longer_than_it_is_wanted(
    joined: Dialog, lanes: Lanes, line: list[bytes], leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[type[BaseException]] = []
    read = ContentBody.read

    def noted(reader: ContentBody, size: int) -> bytes:
        if leaves:
            joined.send(Cancel(number))
        try:
            return read(reader, size)
        except Exception as wrong:
            ended.append(type(wrong))
            raise

    monkeypatch.setattr(ContentBody, "read", noted)
    number = joined.begin(message((repository_read, ReadRequest(encode_selector(LogSelector())))))
    lanes.run_all()
    assert code(joined.answer(number)) == ("cancelled" if leaves else "ok")
    assert lanes.lanes == [Lane.QUICK, *[Lane.CONTENT] * (1 if leaves else 2)]
    assert ended == [Cancelled] * leaves


def test_a_cancelled_read_runs_no_further_call(
    joined: Dialog, lanes: Lanes, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = 0
    run = RequestContext.run

    def noted(context: RequestContext, verb: AnyVerb, arguments: Arguments) -> Result:
        nonlocal ran
        result = run(context, verb, arguments)
        ran += 1
        joined.send(Cancel(number))
        return result

    monkeypatch.setattr(RequestContext, "run", noted)
    number = joined.begin(message(*[(repository_stats, StatsRequest())] * 3))
    lanes.run_all()
    assert code(joined.answer(number)) == "cancelled"
    assert ran == 1


def test_a_push_is_checked_and_made_apart_from_reads(
    joined: Dialog, lanes: Lanes, served: Served, line: list[bytes]
) -> None:
    number = joined.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    body = served.history.body(line[4:6])
    joined.send(Body(number, body[:100]), Body(number, body[100:]), End(number, 2, len(body)))
    lanes.run_all()
    assert code(joined.answer(number)) == "ok"
    assert lanes.lanes == [Lane.BODY, Lane.BODY, Lane.COMMIT, Lane.UPKEEP]
