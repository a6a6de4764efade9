"""Steps: what each holds before and after it was performed; what they do is in the conformance suite."""

from __future__ import annotations

import pytest
from memory_transport import MemoryTransport

from transports.errors import NoSuchFile
from transports.steps import Get, ListDirectory, Publish, Rename, Withdraw


def test_a_step_holds_nothing_before_it_was_performed() -> None:
    step = Get("there")
    for what in ("result", "content"):
        with pytest.raises(LookupError, match=r"Get\(path='there', size=None\) was not performed"):
            getattr(step, what)


def test_a_step_names_its_paths() -> None:
    assert Get("a").paths == ("a",)
    for step in (Rename("a", "b"), Publish("a", "b"), Withdraw("a", "b")):
        assert step.paths == ("a", "b")


def test_a_step_is_performed_once() -> None:
    storage = MemoryTransport()
    step = ListDirectory("")
    storage.perform([step])
    assert step.result == []
    with pytest.raises(LookupError, match="performed twice"):
        storage.perform([step])


def test_what_is_not_there_is_named_when_it_is_needed() -> None:
    step = Get("absent")
    MemoryTransport().perform([step])
    assert step.result is None
    with pytest.raises(NoSuchFile, match="'absent'"):
        step.content  # noqa: B018
