"""server.session: how a connection ends, and peers that are none."""

from __future__ import annotations

import pytest
from builders import MAIN
from dialogs import Dialog, Served, SteppedExecutor, message
from session_calls import INSERT, set_ref

from smartserver.wire.events import (
    Body,
    End,
)
from smartserver.wire.messages import RequestFlag


@pytest.mark.parametrize("part", ["request", "body"])
def test_an_end_in_the_middle_of_an_upload_abandons_it(served: Served, line: list[bytes], part: str) -> None:
    dialog = Dialog(served.site)
    before = served.files()
    number = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    if part == "body":
        dialog.send(Body(number, served.history.segment(line[4])))
        assert served.files() != before
    dialog.session.eof_received()
    assert dialog.closed
    assert dialog.heard == []
    assert served.files() == before


def test_a_lost_connection_abandons_what_was_not_committed(served: Served, line: list[bytes]) -> None:
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    before = served.files()
    number = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    body = served.history.body(line[4:6])
    dialog.send(Body(number, body))
    stepped.step()
    assert served.files() != before
    dialog.send(End(number, 2, len(body)))
    dialog.session.connection_lost()
    stepped.run_all()
    assert dialog.heard == []
    assert served.files() == before
    assert served.refs() == {MAIN: line[3]}
    assert not dialog.session.writable


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x02\x00",
        b"hpss/1\n" + bytes(9),
        b"hpss/1\n" + b"\xff" * 9,
        b"hpss/1\n\x00\x00\x00\x01\x02\x00\x00\x00\x01x",
        b"hpss/1 and no newline for a while" * 3,
    ],
)
def test_garbage_closes_without_an_answer(served: Served, caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    caplog.set_level("INFO", "smartserver")
    dialog = Dialog(served.site)
    dialog.session.data_received(data)
    assert dialog.closed
    assert dialog.raw == b""
    assert len(caplog.records) == 1
    assert caplog.records[0].message.startswith("a test: ")
    dialog.session.data_received(b"more")
    dialog.session.eof_received()
    dialog.session.connection_lost()


def test_garbage_after_a_request_abandons_it(served: Served, line: list[bytes]) -> None:
    dialog = Dialog(served.site)
    before = served.files()
    number = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    dialog.send(Body(number, served.history.segment(line[4])))
    dialog.session.data_received(b"\xff" * 9)
    assert dialog.closed
    assert served.files() == before
