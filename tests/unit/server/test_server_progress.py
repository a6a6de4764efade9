"""server.progress: what the client of a request is told of how far it is, and how often."""

from __future__ import annotations

import pytest
from dialogs import Dialog, Served, message, numbered
from session_calls import INSERT, code, set_ref

from smartserver.server import progress
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.wire.events import Progress, Reply
from smartserver.wire.messages import RequestFlag, decode_progress


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


def phases(dialog: Dialog) -> list[tuple[str, int, int]]:
    told = [decode_progress(event.payload) for event in dialog.heard if isinstance(event, Progress)]
    return [(each.phase, each.done, each.total) for each in told]


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
