"""server.pace: work nobody waits for rests longer than it worked, and not for each little piece."""

from __future__ import annotations

import pytest

from smartserver.server.pace import REST, SLICE, SlowPace


class Time:
    """What a thread has computed, and how long it slept."""

    def __init__(self) -> None:
        self.worked = 7.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.worked


def test_it_rests_twice_as_long_as_it_worked() -> None:
    time = Time()
    pace = SlowPace(lambda: False, time.clock, time.slept.append)
    pace()
    time.worked += SLICE / 2
    pace()
    assert time.slept == []
    time.worked += SLICE
    pace()
    assert time.slept == [pytest.approx(3 * SLICE)]
    pace()
    time.worked += 2 * SLICE
    pace()
    assert time.slept == pytest.approx([3 * SLICE, 4 * SLICE])


def test_it_rests_no_more_where_somebody_waits() -> None:
    time = Time()
    waiting: list[None] = []
    pace = SlowPace(lambda: bool(waiting), time.clock, time.slept.append)
    waiting.append(None)
    time.worked += SLICE
    pace()
    assert time.slept == []
    waiting.clear()
    time.worked += SLICE
    pace()
    assert time.slept == [pytest.approx(REST * SLICE)]  # Not for what it worked in haste.
