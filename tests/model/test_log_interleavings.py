"""The log's code under every interleaving of its calls; each rule, taken away, loses something.

The rules, and what a design without each does: doc/design/0032-one-log.md.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from interleaving import Run, explore
from log_scenes import Fate, Scene, alone
from memory_transport import MemoryTransport

from smartserver.store import checkpoint, log, log_view
from smartserver.store.log import Log
from transports.steps import GetPublished, SyncDirectory

pytestmark = pytest.mark.long

LONG = (10, 11, "clean", 12, "clean")
"""Records 1 and 2 are deleted at its end."""
LONGER = (11, 12, "clean", 13, "clean")
"""After another change: record 3, too."""


def contend(fate: Fate | None = None) -> Run:
    scene = Scene()
    return scene.run(a=scene.writer(1, by=1, fate=fate), b=scene.writer(2, by=2))


def repeat(fate: Fate | None = None) -> Run:
    """A request is sent again, to another server."""
    scene = Scene()
    return scene.run(a=scene.writer(1, by=1, fate=fate), b=scene.writer(1, by=2))


def frozen() -> Run:
    """A writer is frozen while the log goes on and is cleaned."""
    scene = Scene()
    return scene.run(a=scene.writer(1), world=scene.world(*LONG))


def idle() -> Run:
    """A reader idles while the log goes on and is cleaned."""
    scene = Scene()
    return scene.run(a=scene.reader(1), world=scene.world(*LONG))


def replaced() -> Run:
    """A reader idles on record 2 while that is deleted, and another comes in its place."""
    scene = Scene()
    scene.do(10)
    return scene.run(a=scene.reader(1), world=scene.world(*LONGER, "zombie"))


def replaced_under_a_writer() -> Run:
    scene = Scene()
    scene.do(10)
    return scene.run(a=scene.writer(1), world=scene.world(*LONGER, "zombie"))


def cleaned_step_by_step() -> Run:
    """A reader looks while record after record is deleted."""
    scene = Scene()
    return scene.run(a=scene.reader(1), world=scene.cleaner(*LONG[:-1]))


def rotten() -> Run:
    """The newest checkpoint is damaged after the log was cleaned."""
    scene = Scene()
    return scene.run(a=scene.reader(1), world=scene.world(*LONG, "rot"))


def power() -> Run:
    """A request is repeated; the store loses power."""
    scene = Scene(lambda step: alone(step) and not isinstance(step, SyncDirectory))
    return scene.run(a=scene.writer(1, by=1), b=scene.writer(1, by=2), world=scene.world("lose_power"))


def power_of_two() -> Run:
    """The store loses power under two writers."""
    scene = Scene(lambda step: alone(step) and not isinstance(step, SyncDirectory))
    return scene.run(a=scene.writer(1, by=1), b=scene.writer(2, by=2), world=scene.world("lose_power"))


def power_of_a_reader() -> Run:
    """The store loses power under a reader, and with it what a writer published last."""
    scene = Scene(lambda step: alone(step) and not isinstance(step, SyncDirectory))
    return scene.run(a=scene.reader(2), b=scene.writer(1), world=scene.world("lose_power"))


SCENES = {
    scene.__name__: scene
    for scene in (
        contend, repeat, frozen, idle, replaced, replaced_under_a_writer, cleaned_step_by_step, rotten, power,
        power_of_two, power_of_a_reader,
    )
}  # fmt: skip
LOST = {f"{scene.__name__}, {fate.value}": partial(scene, fate) for scene in (contend, repeat) for fate in Fate}


@pytest.mark.parametrize("scene", [*SCENES.values(), *LOST.values()], ids=[*SCENES, *LOST])
def test_with_all_rules(scene: Callable[[], Run]) -> None:
    explored = explore(scene)
    assert not explored.violation, explored.trace


# -- rules taken away

Patch = Callable[[pytest.MonkeyPatch], None]


def not_exclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryTransport, "publish", MemoryTransport.rename)


def compare_by(monkeypatch: pytest.MonkeyPatch, rule: Callable[[GetPublished, bytes], bool]) -> None:
    """Have records that are read again compared by another rule."""
    for module in (log, log_view):
        monkeypatch.setattr(module, "is_still_there", rule)


def no_look_back(monkeypatch: pytest.MonkeyPatch) -> None:
    compare_by(monkeypatch, lambda step, record_hash: True)


def by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_there(step: GetPublished, record_hash: bytes) -> bool:
        return step.result is not None

    compare_by(monkeypatch, is_there)


def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    def sort(values: Iterable[Any], **options: Any) -> list[Any]:
        """Sort the numbers of records the other way round, which are the only integers."""
        found = builtins.sorted(values, **options)
        return found[::-1] if found and isinstance(found[0], int) else found

    monkeypatch.setattr(checkpoint, "sorted", sort, raising=False)


def up_to_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_floor", lambda folder, found: found[0][0])


def not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "make_durable", lambda self, head: None)


@pytest.mark.parametrize(
    ("scene", "without", "violation"),
    [
        (contend, not_exclusive, "lost"),
        (frozen, no_look_back, "lost"),
        (idle, no_look_back, "stale"),
        (replaced, by_name_alone, "stale"),
        (replaced_under_a_writer, by_name_alone, "lost"),
        (cleaned_step_by_step, falling, "stale"),
        (rotten, up_to_the_newest, "opened"),
        (power, not_synced, "lost"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_without_a_rule(
    scene: Callable[[], Run], without: Patch, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)
    explored = explore(scene)
    assert violation in explored.violation, explored
