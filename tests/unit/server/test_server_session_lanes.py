"""server.session, server.exchange: what runs in which lane, so that nothing waits behind what may take long."""

from __future__ import annotations

import msgspec
import pytest
from dialogs import Dialog, Lanes, Served, message
from session_calls import INSERT, PING, PULL, code, set_ref

from smartserver.server import exchange
from smartserver.server.executor import Lane
from smartserver.verbs.declare import AnyVerb, Arguments
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


def test_a_push_is_checked_and_made_apart_from_reads(
    joined: Dialog, lanes: Lanes, served: Served, line: list[bytes]
) -> None:
    number = joined.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    body = served.history.body(line[4:6])
    joined.send(Body(number, body[:100]), Body(number, body[100:]), End(number, 2, len(body)))
    lanes.run_all()
    assert code(joined.answer(number)) == "ok"
    assert lanes.lanes == [Lane.BODY, Lane.BODY, Lane.COMMIT, Lane.UPKEEP]


def test_a_change_without_a_body(joined: Dialog, lanes: Lanes, line: list[bytes]) -> None:
    number = joined.begin(message(set_ref(line[3])))
    lanes.run_all()
    assert code(joined.answer(number)) == "ok"
    assert lanes.lanes[0] is Lane.COMMIT


def test_what_is_given_up_waits_for_no_commit(joined: Dialog, lanes: Lanes, served: Served, line: list[bytes]) -> None:
    number = joined.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    joined.send(Body(number, served.history.body(line[4:6])[:100]), Cancel(number))
    lanes.run_all()
    assert code(joined.answer(number)) == "cancelled"
    assert lanes.lanes == [Lane.BODY, Lane.QUICK]


def test_a_large_request_is_decoded_apart(joined: Dialog, lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LARGE_REQUEST", 1000)
    note = msgspec.Raw(msgspec.msgpack.encode("x" * 1000))
    number = joined.begin(msgspec.structs.replace(message(VERIFY), extras={"note": note}))
    lanes.run_all()
    assert code(joined.answer(number)) == "ok"
    assert lanes.lanes == [Lane.QUICK, Lane.LONG]
