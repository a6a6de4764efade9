"""transports.decorators.ban: what a rule forbids, and what it does not."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable

import pytest

from transports import steps
from transports.base import Transport
from transports.decorators.ban import CALLS, BanTransport, CallBanned
from transports.errors import TransportError
from transports.memory import MemoryTransport
from transports.steps import Asked, Step


def filled() -> MemoryTransport:
    storage = MemoryTransport()
    storage.make_directory("folder")
    storage.put("folder/x", [b"x"])
    storage.put("y", [b"y"])
    return storage


USES: dict[str, Callable[[Transport], object]] = {
    "get": lambda transport: transport.get("folder/x"),
    "open_read": lambda transport: transport.open_read("folder/x").close(),
    "create": lambda transport: transport.put("folder/new", []),
    "append": lambda transport: transport.append("folder/x").close(),
    "rename": lambda transport: transport.rename("folder/x", "z"),
    "delete": lambda transport: transport.delete("folder/x"),
    "make_directory": lambda transport: transport.child("folder").make_directory("new"),
    "remove_directory": lambda transport: transport.remove_directory("folder/new"),
    "list_directory": lambda transport: transport.list_directory("folder/none"),
    "stat": lambda transport: transport.exists("folder/x"),
    "sync_directory": lambda transport: transport.sync_directory("folder/none"),
    "lock": lambda transport: transport.lock("folder/lock").__enter__(),
    "try_lock": lambda transport: transport.try_lock("folder/lock").__enter__(),
}


def test_every_call_and_every_step_can_be_banned() -> None:
    assert USES.keys() == CALLS.keys()
    made = {each for each in vars(steps).values() if inspect.isclass(each) and issubclass(each, Step)}
    assert made - {Step, Asked} == {each for each in CALLS.values() if each is not None}


@pytest.mark.parametrize("call", CALLS)
def test_a_rule_forbids_that_call_alone(call: str) -> None:
    storage = filled()
    banned = BanTransport(storage, [(call, "folder/*")])
    with pytest.raises(CallBanned, match=rf"^the rule {call}, folder/\* bans {call}: 'folder/"):
        USES[call](banned)
    assert storage.list_directory("") == ["folder", "y"]
    assert storage.list_directory("folder") == ["x"]
    assert banned.get("y") == b"y" if call != "get" else banned.exists("y")


def test_what_tidies_up_does_not_hide_it() -> None:
    with pytest.raises(CallBanned), contextlib.suppress(TransportError, OSError):
        BanTransport(filled(), [("delete", "*")]).delete("y")


@pytest.mark.parametrize(
    "rule", [("rename", "y"), ("rename", "folder/*"), ("rename", "*/x"), ("*", "y"), ("ren*", "*")]
)
def test_a_rename_is_banned_by_either_path(rule: tuple[str, str]) -> None:
    with pytest.raises(CallBanned):
        BanTransport(filled(), [rule]).rename("y", "folder/x")
    with pytest.raises(CallBanned):
        BanTransport(filled(), [rule]).perform([steps.Rename("y", "folder/x")])


def test_what_is_not_banned_is_handed_on_together() -> None:
    together: list[int] = []

    class Watched(MemoryTransport):
        def perform(self, steps: object) -> None:
            together.append(len(steps))  # type: ignore[arg-type]
            super().perform(steps)  # type: ignore[arg-type]

    storage = Watched()
    banned = BanTransport(storage, [("delete", "*"), ("open_read", "packs/*"), ("append", "*")])
    done = steps.Get("a")
    banned.perform([steps.Put("a", b"1"), done])
    with pytest.raises(CallBanned, match=r"the rule delete, \* bans delete: 'a'"):
        banned.perform([steps.MakeDirectory("packs"), steps.Put("b"), steps.Delete("a"), steps.Put("c")])
    with pytest.raises(CallBanned, match="bans open_read"):
        banned.child("packs").perform([steps.ReadRanges("x"), steps.SyncDirectory("")])
    with pytest.raises(CallBanned, match=r"the rule append, \* bans append: 'a'"):
        banned.perform([steps.Get("a"), steps.Append("a", b"2")])
    assert together[:2] == [2, 2]
    assert (storage.get("a"), done.content, storage.list_directory("")) == (b"1", b"1", ["a", "b", "packs"])


def test_a_rule_that_matches_no_call_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="no call is 'renam'; there is get, open_read"):
        BanTransport(MemoryTransport(), [("renam", "*")])
