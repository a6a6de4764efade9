"""server.request_log: the line of each request, and what server.request tells of it."""

from __future__ import annotations

import logging

import msgspec
import pytest
from dialogs import Dialog, Served, message
from session_calls import BODY, INSERT, PING, PULL, set_ref

from smartserver.server.access import Anonymous, anonymous
from smartserver.server.request_log import LOST, MAX_PATH, EndedRequest, log, slow
from smartserver.wire.messages import raw

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
TOKEN = "hpss_a-token-that-nobody-may-read"


@pytest.fixture
def ended(served: Served) -> list[EndedRequest]:
    """The requests that are over."""
    found: list[EndedRequest] = []
    served.site.ended = found.append
    return found


def test_neither_a_token_nor_anything_else_of_the_extras_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, log.name)
    extras = {"token": raw(TOKEN), "agent": raw("an agent"), "traceparent": raw(PARENT)}
    Dialog(served.site).ask(msgspec.structs.replace(message(PULL), extras=extras))
    Dialog(served.site, anonymous(Anonymous.NONE, local=True)).ask(
        msgspec.structs.replace(message(PULL), extras=extras)
    )
    assert len(caplog.messages) == 3  # The second is also told why.
    assert TOKEN not in caplog.text
    assert "an agent" not in caplog.text
    lines = [record.getMessage() for record in caplog.records if record.name == log.name]
    assert all(each.endswith(f" trace={TRACE}") for each in lines)


@pytest.mark.parametrize("given", ["x", PARENT + "\n", f"00-{TRACE.upper()}-00f067aa0ba902b7-01", f"a{PARENT}\x1b"])
def test_what_is_no_trace_is_not_logged(served: Served, ended: list[EndedRequest], given: str) -> None:
    Dialog(served.site).ask(msgspec.structs.replace(message(PING, path=""), extras={"traceparent": raw(given)}))
    assert "trace" not in ended[0].fields()


def test_a_hostile_path_makes_one_short_line(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.name)
    path = "a\nrequest user=root outcome=done\x1b[2J" + "x" * 10_000
    Dialog(served.site).ask(message(PULL, path=path))
    (text,) = caplog.messages
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < MAX_PATH + 300
    assert r'path="a\nrequest user=root outcome=done\u001b[2Jxx' in text


def test_a_request_whose_connection_ends_is_lost(served: Served, line: list[bytes], ended: list[EndedRequest]) -> None:
    dialog = Dialog(served.site)
    dialog.begin(message(INSERT, set_ref(line[4]), flags=BODY))
    assert not ended
    dialog.session.connection_lost()
    (lost,) = ended
    assert (lost.outcome, lost.user) == (LOST, "tester")


def test_a_slow_request_is_logged_with_what_took_long(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.site.slow = 0.0
    now = iter(range(1000))
    served.site.clock = lambda: next(now) / 100
    Dialog(served.site).ask(message(PULL))
    (text,) = [record.getMessage() for record in caplog.records if record.name == slow.name]
    assert text.startswith("slow request ")
    assert " verbs=Repository.pull " in text
    assert "answer:" in text.partition(" spans=")[2]
    served.site.slow = 1000.0
    caplog.clear()
    Dialog(served.site).ask(message(PULL))
    assert not caplog.records
