"""transports.decorators.readonly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from transports import steps
from transports.base import Transport
from transports.decorators.readonly import ReadonlyTransport
from transports.errors import PermissionDenied
from transports.memory import MemoryTransport
from transports.steps import Step


@pytest.mark.parametrize(
    "change",
    [
        lambda transport: transport.create("x"),
        lambda transport: transport.put("x", []),
        lambda transport: transport.append("x"),
        lambda transport: transport.rename("x", "y"),
        lambda transport: transport.delete("x"),
        lambda transport: transport.make_directory("x"),
        lambda transport: transport.remove_directory("x"),
        lambda transport: transport.sync_directory("x"),
        lambda transport: transport.lock("x"),
        lambda transport: transport.try_lock("x"),
    ],
)
def test_every_change_is_denied_by_its_whole_path(change: Callable[[Transport], object]) -> None:
    storage = MemoryTransport()
    storage.make_directory("folder")
    storage.put("folder/x", [b"x"])
    with pytest.raises(PermissionDenied) as caught:
        change(ReadonlyTransport(storage).child("folder"))
    assert caught.value.path == "folder/x"
    assert storage.list_directory("folder") == ["x"]
    assert storage.get("folder/x") == b"x"


def test_changes_made_behind_it_are_seen() -> None:
    storage = MemoryTransport()
    readonly = ReadonlyTransport(storage)
    storage.put("x", [b"x"])
    assert readonly.get("x") == b"x"


@pytest.mark.parametrize(
    "change",
    [
        steps.MakeDirectory("x"),
        steps.Put("x"),
        steps.Append("here", b" and more"),
        steps.Rename("here", "x"),
        steps.Delete("here"),
        steps.RemoveDirectory("folder"),
        steps.SyncDirectory(""),
    ],
)
def test_steps_are_performed_up_to_the_first_that_changes(change: Step) -> None:
    storage = MemoryTransport()
    storage.make_directory("folder")
    storage.put("here", [b"here"])
    before, after = steps.Get("here"), steps.Get("here")
    with pytest.raises(PermissionDenied) as wrong:
        ReadonlyTransport(storage).perform([before, change, after])
    assert (before.content, wrong.value.path) == (b"here", change.path)
    assert storage.list_directory("") == ["folder", "here"]
    assert storage.get("here") == b"here"
    with pytest.raises(LookupError):
        after.result  # noqa: B018


def test_questions_are_handed_on_together() -> None:
    class Together(MemoryTransport):
        def perform(self, steps: Sequence[Step]) -> None:
            assert len(steps) == 3
            super().perform(steps)

    names = steps.ListDirectory("")
    ReadonlyTransport(Together()).perform([steps.Get("absent"), names, steps.GetStat("")])
    assert names.result == []
