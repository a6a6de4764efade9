"""server.progress: what the client of a request is told of how far it is, and how often."""

from __future__ import annotations

import pytest
from builders import MAIN
from dialogs import Dialog, Served, SteppedExecutor, message, numbered
from session_calls import INSERT, PING, code, set_ref

from smartserver.server import progress
from smartserver.server.request import ServedRequest
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.wire.events import Body, End, Error, Progress, Reply, Request
from smartserver.wire.messages import RequestFlag, decode_progress, encode


def test_a_long_verification_says_how_far_it_is(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    dialog = Dialog(served.site)

    def advance() -> float:
        served.ticks = served.ticks + 0.2
        return served.ticks

    served.site.clock = advance
    number = dialog.begin(message((repository_verify, VerifyRequest())))
    told = [decode_progress(event.payload) for event in dialog.heard if isinstance(event, Progress)]
    assert told
    assert {each.phase for each in told} == {"verify"}
    assert 0 < told[-1].done <= told[-1].total
    assert isinstance(dialog.heard[-1], Reply)
    assert code(dialog.answer(number)) == "ok"


def test_progress_is_said_twice_a_second(served: Served) -> None:
    dialog = Dialog(served.site)
    dialog.begin(message(INSERT, flags=RequestFlag.BODY))
    said: list[Progress] = []
    (made,) = dialog.session._requests.values()
    dialog.session.send = said.append  # type: ignore[method-assign, assignment]
    for done in range(10):
        made._progress.tell("upkeep", done, 10)
        served.ticks = served.ticks + progress.PROGRESS_INTERVAL / 2
    assert [decode_progress(event.payload).done for event in said] == [0, 2, 4, 6, 8]


def test_what_began_at_zero_has_begun(served: Served) -> None:
    """A clock may say so: a second beginning is none."""
    said: list[bytes] = []
    made = progress.RequestProgress(served.site, said.append)
    made.began(0.0)
    made.began(progress.PROGRESS_INTERVAL / 2)
    for now in (progress.PROGRESS_INTERVAL * 0.9, progress.PROGRESS_INTERVAL):
        served.ticks = now
        made.tell("verify", int(now * 100), 0)
    assert [decode_progress(each).done for each in said] == [int(progress.PROGRESS_INTERVAL * 100)]


def test_the_end_of_what_was_said_is_said(served: Served) -> None:
    dialog = Dialog(served.site)
    dialog.begin(message(INSERT, flags=RequestFlag.BODY))
    said: list[Progress] = []
    (made,) = dialog.session._requests.values()
    dialog.session.send = said.append  # type: ignore[method-assign, assignment]
    for phase, done, total in [("a", 1, 9), ("a", 2, 9), ("a", 9, 9), ("a", 9, 9), ("b", 9, 9), ("c", 0, 0)]:
        made._progress.tell(phase, done, total)
    told = [decode_progress(event.payload) for event in said]
    assert [(each.phase, each.done) for each in told] == [("a", 1), ("a", 9)]


def phases(dialog: Dialog) -> list[tuple[str, int, int]]:
    told = [decode_progress(event.payload) for event in dialog.heard if isinstance(event, Progress)]
    return [(each.phase, each.done, each.total) for each in told]


def test_a_large_push_says_what_is_done_after_its_end(
    served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not checked yet is counted; no time passes here, so each phase is said once, and at its end."""
    body = served.history.body(line[4:6])
    monkeypatch.setattr(progress, "LARGE_UPLOAD", len(body))
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    number = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    for at in range(0, len(body), 100):
        dialog.send(Body(number, body[at : at + 100]))
    stepped.step()
    assert dialog.heard == []
    dialog.send(End(number, 2, len(body)))
    stepped.run_all()
    assert phases(dialog) == [
        ("check", 100, len(body)),
        ("check", len(body), len(body)),
        ("store", 0, 0),
        ("commit", 0, 0),
    ]
    assert isinstance(dialog.heard[-1], Reply)


def test_a_large_push_that_must_be_checked_again_says_so(
    served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = served.history.body(line[4:6])
    monkeypatch.setattr(progress, "LARGE_UPLOAD", len(body))
    dialog = Dialog(served.site)
    number = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    dialog.send(Body(number, body))
    served.push(line[4:5], {MAIN: line[4]})
    dialog.send(End(number, 2, len(body)))
    assert code(dialog.answer(number)) == "ok"
    assert [phase for phase, _, _ in phases(dialog)] == ["store", "check again", "commit"]


def test_a_small_push_says_nothing_unless_it_takes_long(served: Served, line: list[bytes]) -> None:
    dialog = Dialog(served.site)
    dialog.ask(message(INSERT, set_ref(line[4]), flags=RequestFlag.BODY), served.history.segment(line[4]), 1)
    assert [type(event) for event in dialog.heard] == [Reply]

    def advance() -> float:
        served.ticks += 0.15
        return served.ticks

    served.site.clock = advance
    slow = Dialog(served.site)
    body = served.history.segment(line[5])
    slow.ask(message(INSERT, set_ref(line[5]), request=numbered(2), flags=RequestFlag.BODY), body, 1)
    assert phases(slow) == [("commit", 0, 0)]


def test_progress_after_the_answer_is_not_sent(served: Served) -> None:
    dialog = Dialog(served.site)
    made = ServedRequest(dialog.session, 1)
    dialog.send(Request(1, encode(message(PING, path=""))))
    before = len(dialog.heard)
    made._work.is_over = True
    made._progress.tell("late", 1, 2)
    assert len(dialog.heard) == before


def test_no_progress_before_the_end_of_an_upload(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    """A verification in a request that changes something would hold the lock for minutes: it is refused."""
    request = message((repository_verify, VerifyRequest()), INSERT, set_ref(line[5]), flags=RequestFlag.BODY)
    assert code(dialog.ask(request, served.history.body(line[4:6]), 2)) == "unsupported"
    assert [type(event) for event in dialog.heard] == [Error]
    assert served.refs() == {MAIN: line[3]}
