"""gateway.places, gateway.updates: programs take turns, and lost requests wait for nothing."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from dialogs import SteppedExecutor

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
