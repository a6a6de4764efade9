from __future__ import annotations

import pytest

from netem.clock import Clock


def test_events_run_in_order_of_time_then_of_asking() -> None:
    clock, ran = Clock(), list[tuple[str, float]]()
    for name, delay in [("b", 2.0), ("a", 1.0), ("c", 2.0), ("now", 0.0)]:
        clock.call_later(delay, lambda name=name: ran.append((name, clock.now)))  # type: ignore[misc]
    clock.run()
    assert ran == [("now", 0.0), ("a", 1.0), ("b", 2.0), ("c", 2.0)]


def test_time_is_exact() -> None:
    clock = Clock()
    for _ in range(10):
        clock.sleep(0.1)
    assert clock.now == 1.0


def test_run_until_stops_as_soon_as_the_condition_holds() -> None:
    clock, ran = Clock(), list[int]()
    for n in range(5):
        clock.call_later(n, lambda n=n: ran.append(n))  # type: ignore[misc]
    assert clock.run_until(lambda: len(ran) == 2)
    assert (ran, clock.now) == ([0, 1], 1.0)
    assert not clock.run_until(lambda: len(ran) == 9)
    assert (ran, clock.now) == ([0, 1, 2, 3, 4], 4.0)


def test_a_condition_that_holds_runs_nothing() -> None:
    clock = Clock()
    clock.call_later(0, lambda: pytest.fail("ran"))
    assert clock.run_until(lambda: True)


def test_timeout_leaves_later_events_and_stands_at_its_end() -> None:
    clock, ran = Clock(), list[float]()
    clock.call_later(3, lambda: ran.append(clock.now))
    assert not clock.run_until(lambda: bool(ran), timeout=2)
    assert (clock.now, ran) == (2.0, [])
    assert clock.run_until(lambda: bool(ran), timeout=1)
    assert ran == [3.0]


def test_cancelled_events_do_not_run_nor_move_the_clock() -> None:
    clock = Clock()
    timer = clock.call_later(5, lambda: pytest.fail("ran"))
    timer.cancel()
    timer.cancel()
    assert not clock.step()
    assert clock.now == 0.0


def test_an_event_may_run_the_clock() -> None:
    clock, ran = Clock(), list[str]()
    clock.call_later(2, lambda: ran.append("inner"))

    def outer() -> None:
        clock.sleep(3)
        ran.append("outer")

    clock.call_later(1, outer)
    clock.call_later(3, lambda: ran.append("between"))
    clock.run()
    assert ran == ["inner", "between", "outer"]
    assert clock.now == 4.0


def test_the_past_is_refused() -> None:
    clock = Clock()
    clock.sleep(1)
    with pytest.raises(ValueError, match="cannot call at 5 ns, it is 1000000000 ns"):
        clock.call_at(5, lambda: None)
    with pytest.raises(ValueError, match="from 0 on"):
        clock.call_later(-1, lambda: None)
