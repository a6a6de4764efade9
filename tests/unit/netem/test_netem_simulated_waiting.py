from __future__ import annotations

from netem.simulated_waiting import Waiting


def test_waits_of_one_round_trip_are_added_before_they_are_divided() -> None:
    waiting = Waiting()
    for begun in range(0, 30, 3):
        waiting.begin(begun, 3)
        waiting.end(begun + 1)
    assert waiting.rounds(3) == (10 / 3, 10 / 3)


def test_connecting_is_told_apart_at_each_round_trip() -> None:
    waiting = Waiting()
    waiting.begin(0, 10, connecting=True)
    waiting.end(10)
    waiting.change(10, 2)
    waiting.begin(10, 2)
    waiting.end(14)
    assert waiting.rounds(2) == (3.0, 2.0)


def test_a_handshake_under_way_keeps_its_link() -> None:
    waiting = Waiting()
    waiting.begin(0, 10, connecting=True)
    waiting.change(5, 1)
    waiting.end(10)
    assert waiting.rounds(1) == (1.0, 0.0)


def test_links_side_by_side_have_no_number_and_links_one_after_the_other_do() -> None:
    for changed, found in ((False, (None, None)), (True, (2.0, 2.0))):
        waiting = Waiting()
        waiting.begin(0, 10)
        waiting.end(10)
        if changed:
            waiting.change(10, 5)
        waiting.begin(10, 5)
        waiting.end(15)
        assert waiting.rounds(5) == found


def test_where_nothing_was_waited_for_the_link_decides() -> None:
    assert Waiting().rounds(5) == (0.0, 0.0)
    assert Waiting().rounds(0) == (None, None)


def test_a_wait_inside_another_is_counted_once_and_by_its_own_link() -> None:
    waiting = Waiting()
    waiting.begin(0, 10)
    waiting.begin(5, 10, connecting=True)
    waiting.end(15)
    waiting.end(20)
    assert waiting.rounds(10) == (2.0, 1.0)


def test_a_change_is_of_each_wait_that_is_open() -> None:
    waiting = Waiting()
    waiting.begin(0, 10)
    waiting.begin(10, 10)
    waiting.change(20, 5)
    waiting.end(25)
    waiting.end(30)
    assert waiting.rounds(5) == (4.0, 4.0)


def test_an_open_wait_goes_on_in_the_rest() -> None:
    waiting = Waiting()
    waiting.begin(0, 10, connecting=True)
    rest = waiting.rest(4)
    rest.end(10)
    assert (waiting.rounds(10), rest.rounds(10)) == ((0.4, 0.0), (0.6, 0.0))
    assert rest.rest(10).rounds(10) == (0.0, 0.0)


def test_waits_side_by_side_stay_so_in_the_rest() -> None:
    waiting = Waiting()
    waiting.begin(0, 10)
    waiting.begin(0, 5)
    assert waiting.rest(1).rounds(5) == (None, None)
