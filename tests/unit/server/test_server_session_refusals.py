"""server.session: uploads that are refused, and requests that are cancelled."""

from __future__ import annotations

import pytest
from builders import MAIN
from dialogs import Dialog, Served, SteppedExecutor, message, numbered
from session_calls import INSERT, PING, code, set_ref

from smartserver.errors import Banned
from smartserver.server.work import RequestWork
from smartserver.verbs.declare import Calls
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Error,
    Request,
)
from smartserver.wire.limits import MAX_FRAME
from smartserver.wire.messages import RequestFlag


def test_a_refusal_comes_early_and_the_connection_goes_on(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    side = served.history.line(3, line[0], "side")
    flags = RequestFlag.BODY | RequestFlag.GRAPH_FIRST
    body = served.history.body(side, graph_first=True)
    graph = body[: len(body) - len(served.history.body(side))]
    number = dialog.begin(message(INSERT, set_ref(side[2]), flags=flags))
    (error,) = dialog.send(Body(number, graph))
    assert isinstance(error, Error)
    assert code(dialog.answer(number)) == "refused"
    assert dialog.session.idle
    assert dialog.send(Body(number, body[len(graph) :]), Cancel(number)) == []
    assert code(dialog.ask(message(PING, path=""))) == "ok"
    assert "incoming" not in "".join(path for path in served.files() if path.startswith("project/incoming/"))


def test_cancel_after_the_end_gets_the_final_answer(served: Served, line: list[bytes]) -> None:
    """Which is `cancelled` while the change is not made yet, and what became of it afterwards."""
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    body = served.history.body(line[4:6])

    first = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    dialog.send(Body(first, body), End(first, 2, len(body)), Cancel(first))
    stepped.run_all()
    assert code(dialog.answer(first)) == "cancelled"
    assert served.refs() == {MAIN: line[3]}

    second = dialog.begin(message(INSERT, set_ref(line[5]), request=numbered(2), flags=RequestFlag.BODY))
    dialog.send(Body(second, body), End(second, 2, len(body)))
    stepped.run_all()
    assert code(dialog.answer(second)) == "ok"
    # The client had not read it when it cancelled: the two crossed, and nothing more is said.
    late = Cancel(second)
    dialog.session.data_received(bytes.fromhex("0000000007") + second.to_bytes(4, "big"))
    stepped.run_all()
    assert late.id == second
    assert len(dialog.heard) == 2
    assert served.refs() == {MAIN: line[5]}


def test_cancel_in_the_commit_changes_nothing_more(
    served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled between the end of the body and the plan under the lock."""
    dialog = Dialog(served.site)
    finish = RequestWork._commit

    def cancelled(work: RequestWork, *arguments: object) -> object:
        assert work.running is not None
        work.running.allowance.cancelled = True
        return finish(work, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RequestWork, "_commit", cancelled)
    request = message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY)
    before = served.files()
    assert code(dialog.ask(request, served.history.body(line[4:6]), 2)) == "cancelled"
    assert served.files() == before


def test_a_request_cancelled_before_it_is_whole_is_answered(dialog: Dialog) -> None:
    dialog.send(Request(1, bytes(MAX_FRAME), more=True))
    (error,) = dialog.send(Cancel(1))
    assert isinstance(error, Error)
    assert code(dialog.answer(1)) == "cancelled"
    assert dialog.session.idle


def test_a_banned_call_is_refused_and_nothing_of_its_request_is_done(dialog: Dialog, served: Served) -> None:
    before = served.files()
    asked: list[tuple[str, list[str]]] = []

    def banned(path: str, calls: Calls) -> Banned | None:
        asked.append((path, [verb.name for verb, _ in calls]))
        return Banned("Branch.set_last_revision", "rpc:Branch.*") if len(calls) > 1 else None

    served.site.banned = banned
    tip = served.refs()[MAIN]
    number = dialog.begin(message(PING, set_ref(tip)))
    failure = dialog.answer(number)
    assert code(failure) == "banned"
    number = dialog.begin(message(INSERT, set_ref(tip), flags=RequestFlag.BODY))
    assert code(dialog.answer(number)) == "banned"
    assert dialog.send(Body(number, b"more"), End(number, 1, 4)) == []
    assert code(dialog.ask(message(PING, path=""))) == "ok"
    assert served.files() == before
    assert asked == [
        ("project", ["Server.ping", "Branch.set_last_revision"]),
        ("project", ["Repository.insert_pack", "Branch.set_last_revision"]),
        ("", ["Server.ping"]),
    ]
