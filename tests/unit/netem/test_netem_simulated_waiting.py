"""netem.simulated_waiting: what no dialog on the simulated network shows."""

from __future__ import annotations

from netem.simulated_waiting import Waiting


def test_waits_of_one_round_trip_are_added_before_they_are_divided() -> None:
    waiting = Waiting()
    for begun in range(0, 30, 3):
        waiting.begin(begun, 3)
        waiting.end(begun + 1)
    assert waiting.rounds(3) == (10 / 3, 10 / 3)


def test_where_nothing_was_waited_for_the_link_decides() -> None:
    assert Waiting().rounds(5) == (0.0, 0.0)
    assert Waiting().rounds(0) == (None, None)


def test_waits_side_by_side_stay_so_in_the_rest() -> None:
    waiting = Waiting()
    waiting.begin(0, 10)
    waiting.begin(0, 5)
    assert waiting.rest(1).rounds(5) == (None, None)
