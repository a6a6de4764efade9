"""gateway.body: the file of a body is closed once, and no failure stops the reading."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from dialogs import SteppedExecutor

from smartserver.gateway.body import HIGH, SMALL, BadBody, RequestBody
from smartserver.server.executor import NOBODY


def body_in(folder: Path) -> RequestBody:
    return RequestBody(str(folder), SteppedExecutor(), NOBODY, lambda more: None, gzip=False, most=1000)


def test_a_client_that_goes_while_its_body_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor would be that of another file by the next write."""
    body = body_in(tmp_path)
    body.add(b"one")
    body.add(b"two")
    original = RequestBody._append

    def append(self: RequestBody, content: bytes) -> None:
        if content == b"two":
            self.abandon()
        original(self, content)

    monkeypatch.setattr(RequestBody, "_append", append)
    with open(body.open(), "rb") as file:
        assert file.read() == b"onetwo"
    body.abandon()


def test_a_client_that_went_before(tmp_path: Path) -> None:
    body = body_in(tmp_path)
    body.add(b"one")
    body.abandon()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(BadBody):
        body.open()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_disk_that_is_full_stops_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer follows the rest of the body, which must come for that."""
    reads: list[bool] = []
    executor = SteppedExecutor()
    body = RequestBody(str(tmp_path), executor, NOBODY, reads.append, gzip=False, most=HIGH * 9)

    def append(self: RequestBody, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(RequestBody, "_append", append)
    for size in (SMALL + 1, HIGH, HIGH):
        body.add(bytes(size))
    executor.run_all()
    assert reads == [False, True]
    body.add(b"more")
    with pytest.raises(OSError, match="full"):
        body.open()
