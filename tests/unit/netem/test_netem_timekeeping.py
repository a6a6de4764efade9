from __future__ import annotations

import pytest

from netem.timekeeping import PAUSE, Timekeeping, latest


def test_the_latest_waking_counts() -> None:
    now, late = 100.0, iter([0.0, 0.001, 0.25, 0.002])
    left = 4

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + next(late)

    def running() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    assert latest(running, lambda: now, sleep) == pytest.approx(0.25)


def test_who_never_slept_was_never_late() -> None:
    assert latest(lambda: False) == 0


def test_it_looks_while_it_is_entered() -> None:
    with Timekeeping() as kept:
        pass
    assert kept.late >= 0
    assert not kept._thread.is_alive()


def test_it_ends_when_what_is_inside_fails() -> None:
    kept = Timekeeping()
    with pytest.raises(KeyError), kept:
        raise KeyError
    assert not kept._thread.is_alive()


def test_a_sleep_is_short_beside_what_is_measured() -> None:
    assert PAUSE <= 0.005
