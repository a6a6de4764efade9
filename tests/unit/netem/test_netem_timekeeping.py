from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from netem import timekeeping
from netem.timekeeping import PAUSE, Timekeeping, wakings


def test_how_late_each_waking_was() -> None:
    now, late = 100.0, iter([0.0, 0.001, 0.25, 0.002])
    left = 4

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + next(late)

    def running() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    assert wakings(running, lambda: now, sleep) == pytest.approx([0.0, 0.001, 0.25, 0.002])


def test_who_never_slept_was_never_late() -> None:
    assert wakings(lambda: False) == []


def test_it_looks_while_it_is_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    def look(running: Callable[[], object]) -> list[float]:
        assert running()
        looked.set()
        while running():
            time.sleep(PAUSE)
        return [0.0] * 197 + [0.25, 0.004, 0.004]

    monkeypatch.setattr(timekeeping, "wakings", look)
    with Timekeeping() as kept:
        assert looked.wait(30)
        assert kept._thread.is_alive()
    assert (kept.late, kept.p99) == (0.25, 0.004)
    assert not kept._thread.is_alive()


def test_it_ends_when_what_is_inside_fails() -> None:
    kept = Timekeeping()
    with pytest.raises(KeyError), kept:
        raise KeyError
    assert not kept._thread.is_alive()
