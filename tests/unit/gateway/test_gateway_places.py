"""gateway.places, updates, body: programs take turns, lost requests wait for nothing, and bodies have files."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dialogs import SteppedExecutor

from smartserver.gateway.body import HIGH, SMALL, BadBody, RequestBody
from smartserver.gateway.places import Places
from smartserver.gateway.updates import Updates
from smartserver.server.executor import NOBODY


def test_the_address_with_the_fewest_programs_comes_first() -> None:
    places, begun = Places(2), list[str]()
    for name in ("a1", "a2", "a3", "b1"):
        places.take(name[0], partial(begun.append, name))
    assert begun == ["a1", "a2"]
    places.leave("a")
    assert begun == ["a1", "a2", "b1"]
    places.leave("b")
    assert begun == ["a1", "a2", "b1", "a3"]
    places.leave("a")
    places.leave("a")
    places.take("c", partial(begun.append, "c1"))
    assert begun[-1] == "c1"


def test_a_lost_request_takes_no_place() -> None:
    places, begun = Places(1), list[str]()
    lost = partial(begun.append, "lost")
    for begin in (partial(begun.append, "a"), lost, partial(begun.append, "b")):
        places.take("x", begin)
    places.forget(lost)
    assert len(places._waiting) == 1
    places.leave("x")
    assert begun == ["a", "b"]


def test_a_lost_request_waits_for_no_update() -> None:
    executor, done = SteppedExecutor(), list[str]()

    def ended(name: str) -> Any:
        return lambda _: done.append(name)

    gateway: Any = SimpleNamespace(executor=executor, bring=lambda path: SimpleNamespace(close=lambda: None))
    updates, lost = Updates(gateway), ended("lost")
    for each in (ended("first"), lost, ended("second")):
        updates.bring("project", NOBODY, each)
    updates.forget("project", lost)
    updates.forget("other", lost)
    executor.run_all()
    assert done == ["first", "second"]
    assert not updates._waiting


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
