from __future__ import annotations

import pytest

from netem.clock import Clock


def test_events_run_in_order_of_time_then_of_asking() -> None:
    clock, ran = Clock(), list[tuple[str, float]]()
    for name, delay in [("b", 2.0), ("a", 1.0), ("c", 2.0), ("now", 0.0)]:
        clock.call_later(delay, lambda name=name: ran.append((name, clock.now)))  # type: ignore[misc]
    clock.run()
    assert ran == [("now", 0.0), ("a", 1.0), ("b", 2.0), ("c", 2.0)]


def test_cancelled_events_do_not_run_nor_move_the_clock() -> None:
    clock = Clock()
    timer = clock.call_later(5, lambda: pytest.fail("ran"))
    timer.cancel()
    timer.cancel()
    assert not clock.step()
    assert clock.now == 0.0


def test_the_past_is_refused() -> None:
    clock = Clock()
    clock.sleep(1)
    with pytest.raises(ValueError, match="cannot call at 5 ns, it is 1000000000 ns"):
        clock.call_at(5, lambda: None)
    with pytest.raises(ValueError, match="from 0 on"):
        clock.call_later(-1, lambda: None)
