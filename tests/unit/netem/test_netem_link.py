from __future__ import annotations

import pytest

from netem.effects import Blackhole, Cut, Delay, Effect, Ending, Jitter, Loss, Parcel, Rate, Stall
from netem.link import Lane, Link
from netem.units import NEVER

MS = 1_000_000


def drain(lane: Lane) -> list[tuple[int, int]]:
    out = []
    while lane.next_at < NEVER:
        at = lane.next_at // MS
        out.append((at, len(lane.take().content)))
    return out


def test_half_the_round_trip_each_way() -> None:
    lane = Link(rtt=0.1).lane(up=True)
    lane.enter(0, b"abc")
    lane.enter(30 * MS, b"d", Ending.EOF)
    assert drain(lane) == [(50, 3), (80, 1)]


def test_rate_before_delay() -> None:
    lane = Link(rtt=0.1, rate=1000).lane(up=True)
    lane.enter(0, bytes(100))
    assert (lane.unsent(0), lane.undelivered) == (100, 100)
    assert lane.next_left(0) == 100 * MS
    assert (lane.unsent(100 * MS), lane.undelivered) == (0, 100)
    assert drain(lane) == [(150, 100)]
    assert lane.undelivered == 0


def test_without_rate_bytes_leave_at_once() -> None:
    lane = Link(rtt=0.1).lane(up=True)
    lane.enter(0, bytes(10**6))
    assert lane.unsent(0) == 0
    assert lane.next_left(0) == NEVER


def test_room_is_what_buffer_and_window_leave() -> None:
    link = Link(rtt=0.1, rate=1000, buffer=150, window=250)
    lane = link.lane(up=True)
    assert lane.room(0) == 150
    lane.enter(0, bytes(100))
    assert lane.room(0) == 50
    assert lane.room(100 * MS) == 150
    lane.enter(100 * MS, bytes(100))
    lane.enter(200 * MS, bytes(50))
    assert lane.room(300 * MS) == 0
    lane.take()
    assert lane.room(300 * MS) == 100


def test_effects_are_chosen_per_direction() -> None:
    link = Link(rtt=0.1, up=[Delay(0.2)], down=[Cut(1)])
    up, down = link.lane(up=True), link.lane(up=False)
    up.enter(0, b"abc")
    down.enter(0, b"abc")
    assert drain(up) == [(250, 3)]
    assert bytes(down.take().content) == b"a"
    assert (link.one_way(up=True), link.one_way(up=False), link.round_trip) == (250 * MS, 50 * MS, 300 * MS)


def test_order_is_kept_whatever_the_effects_do() -> None:
    lane = Link(rtt=0, up=[Stall(1, 0.1)]).lane(up=True)
    lane.enter(0, b"ab")
    lane.enter(200 * MS, b"c")
    assert drain(lane) == [(0, 1), (100, 1), (200, 1)]


def test_stalled_bytes_fill_the_buffer_for_ever() -> None:
    lane = Link(rtt=0, buffer=10, up=[Stall(0)]).lane(up=True)
    lane.enter(0, bytes(10))
    assert (lane.room(0), lane.next_at, lane.next_left(0), lane.room(10**15)) == (0, NEVER, NEVER, 0)


def test_clear() -> None:
    lane = Link(rtt=1, rate=10).lane(up=True)
    lane.enter(0, bytes(100))
    lane.clear()
    assert (lane.undelivered, lane.unsent(0), lane.next_at) == (0, 0, NEVER)
    with pytest.raises(IndexError):
        lane.take()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"rtt": -1}, "from 0 on"),
        ({"rtt": 1, "rate": 0}, "more than 0"),
        ({"rtt": 1, "buffer": 0}, "expected 1 or more"),
        ({"rtt": 1, "window": 0}, "expected 1 or more"),
    ],
)
def test_a_link_that_cannot_be_is_refused(arguments: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Link(**arguments)  # type: ignore[arg-type]


def test_a_change_leaves_alone_what_is_on_the_way() -> None:
    lane = Link(rtt=0.2).lane(up=True)
    lane.enter(0, b"abc")
    assert lane.change(10 * MS, Link(rtt=0.02), up=True) == []
    lane.enter(10 * MS, b"d")  # faster, and yet it passes nobody
    lane.enter(150 * MS, b"ef")
    assert drain(lane) == [(100, 3), (100, 1), (160, 2)]


@pytest.mark.parametrize("effect", [Stall(1), Blackhole(1)])
def test_what_was_stuck_is_sent_again_over_the_new_link(effect: Effect) -> None:
    lane = Link(rtt=0.2, buffer=10, up=[effect]).lane(up=True)
    lane.enter(0, b"abc", tag="first")
    lane.enter(1 * MS, b"d", Ending.EOF, tag="second")
    sent = lane.change(500 * MS, Link(rtt=0.02, buffer=20), up=True)
    assert [(bytes(parcel.content), parcel.ending, parcel.tag, parcel.at // MS) for parcel in sent] == [
        (b"bc", Ending.MORE, "first", 510),
        (b"d", Ending.EOF, "second", 510),
    ]
    assert (lane.undelivered, lane.unsent(500 * MS), lane.room(500 * MS)) == (4, 0, 20)
    assert drain(lane) == [(100, 1), (510, 2), (510, 1)]


def test_an_effect_that_counts_bytes_begins_anew_with_a_change() -> None:
    link = Link(rtt=0, up=[Cut(5)])
    lane = link.lane(up=True)
    lane.enter(0, b"abcd")
    lane.change(0, link, up=True)
    lane.enter(0, b"efgh")
    assert [bytes(lane.take().content) for _ in range(2)] == [b"abcd", b"efgh"]


def test_trains_pass_where_nothing_is_done_to_single_packets() -> None:
    assert Link(0.1, up=[Delay(1), Stall(1), Blackhole()]).trains
    for effect in (Loss(0.1), Jitter(1), Rate(1)):
        assert not Link(0.1, down=[effect]).trains
    assert not Link(0.1, rate=1).trains


def test_packets_pass_the_same_effects_in_the_same_order() -> None:
    link = Link(0.1, 1000, up=[Delay(0.2)])
    parcels = [Parcel(bytes(100), 0, 0)]
    for stage in link.packet_stages(up=True):
        parcels = [out for parcel in parcels for out in stage(parcel)]
    assert [parcel.at // MS for parcel in parcels] == [350]
