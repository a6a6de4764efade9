"""server.session, server.request, server.work: how many calls a chunk of a push takes from its frame to the store."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from dialogs import Dialog, Served, message
from session_calls import BODY, INSERT, code, set_ref

from smartserver.server.session import Session
from smartserver.store.upload import Upload

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
