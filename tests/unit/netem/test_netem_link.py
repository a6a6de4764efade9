"""netem.link; netem.proxy and netem.proxy_thread, as far as they need no client: the rest is in tests/sockets."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from netem import proxy as proxies
from netem import proxy_thread as module
from netem.effects import Blackhole, Corrupt, Cut, Delay, Effect, Ending, Jitter, Loss, Parcel, Rate, Stage, Stall
from netem.link import BUFFER, WINDOW, Lane, Link
from netem.proxy import REFILL, Proxy, filled
from netem.proxy_thread import ProxyError, ProxyThread
from netem.tcp_model import TcpModel
from netem.units import NEVER

MS = 1_000_000


def drain(lane: Lane) -> list[tuple[int, int]]:
    out = []
    while lane.next_at < NEVER:
        at = lane.next_at // MS
        out.append((at, len(lane.take().content)))
    return out


def test_room_is_what_buffer_and_window_leave() -> None:
    link = Link(rtt=0.1, rate=1000, buffer=150, window=250)
    lane = link.lane(up=True, connection=1)
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
    up, down = link.lane(up=True, connection=1), link.lane(up=False, connection=1)
    up.enter(0, b"abc")
    down.enter(0, b"abc")
    assert drain(up) == [(250, 3)]
    assert bytes(down.take().content) == b"a"
    assert (link.one_way(up=True), link.one_way(up=False), link.round_trip) == (250 * MS, 50 * MS, 300 * MS)


def test_clear() -> None:
    lane = Link(rtt=1, rate=10).lane(up=True, connection=1)
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
    lane = Link(rtt=0.2).lane(up=True, connection=1)
    lane.enter(0, b"abc")
    assert lane.change(10 * MS, Link(rtt=0.02)) == []
    lane.enter(10 * MS, b"d")  # faster, and yet it passes nobody
    lane.enter(150 * MS, b"ef")
    assert drain(lane) == [(100, 3), (100, 1), (160, 2)]


@pytest.mark.parametrize("effect", [Stall(1), Blackhole(1)])
def test_what_was_stuck_is_sent_again_over_the_new_link(effect: Effect) -> None:
    lane = Link(rtt=0.2, buffer=10, up=[effect]).lane(up=True, connection=1)
    lane.enter(0, b"abc", tag="first")
    lane.enter(1 * MS, b"d", Ending.EOF, tag="second")
    sent = lane.change(500 * MS, Link(rtt=0.02, buffer=20))
    assert [(bytes(parcel.content), parcel.ending, parcel.tag, parcel.at // MS) for parcel in sent] == [
        (b"bc", Ending.MORE, "first", 510),
        (b"d", Ending.EOF, "second", 510),
    ]
    assert (lane.undelivered, lane.unsent(500 * MS), lane.room(500 * MS)) == (4, 0, 20)
    assert drain(lane) == [(100, 1), (510, 2), (510, 1)]


def test_an_effect_that_counts_bytes_begins_anew_with_a_change() -> None:
    link = Link(rtt=0, up=[Cut(5)])
    lane = link.lane(up=True, connection=1)
    lane.enter(0, b"abcd")
    lane.change(0, link)
    lane.enter(0, b"efgh")
    assert [bytes(lane.take().content) for _ in range(2)] == [b"abcd", b"efgh"]


def test_trains_pass_where_nothing_is_done_to_single_packets() -> None:
    assert Link(0.1, up=[Delay(1), Stall(1), Blackhole()]).trains
    for effect in (Loss(0.1), Jitter(1), Rate(1)):
        assert not Link(0.1, down=[effect]).trains
    assert not Link(0.1, rate=1).trains


def out_of(stages: list[Stage], *entering: Parcel) -> list[Parcel]:
    """The parcels that come out when parcels enter one after the other."""
    out = []
    for entered in entering:
        parcels = [entered]
        for stage in stages:
            parcels = [after for parcel in parcels for after in stage(parcel)]
        out += parcels
    return out


def both_kinds(link: Link, *, up: bool = True) -> list[list[Stage]]:
    return [link.stages(up=up, connection=1), link.packet_stages(up=up)]


@pytest.mark.parametrize("rate", [{"rate": 1000.0}, {"up": [Rate(1000.0)]}])
def test_what_is_delayed_has_left_at_the_rate(rate: dict[str, Any]) -> None:
    """Wherever the delay was written, it is on the way, for packets too."""
    link = Link(0.1, rate.get("rate"), up=[Delay(0.2), *rate.get("up", [])])
    for stages in both_kinds(link):
        out = out_of(stages, Parcel(bytes(100), 0, 0), Parcel(bytes(100), 0, 0))
        assert [(parcel.left // MS, parcel.at // MS) for parcel in out] == [(100, 350), (200, 450)]


@pytest.mark.parametrize("rate", [None, 1_000_000.0])
def test_a_rate_lets_packets_pass_each_other(rate: float | None) -> None:
    link = Link(0.1, rate, down=[Jitter(0.005, ordered=False)])
    out = out_of(link.packet_stages(up=False), *(Parcel(bytes(100), n * MS, n * MS) for n in range(200)))
    passed = sum(first.at > second.at for first, second in pairwise(out))
    assert 50 < passed < 150


def test_a_black_hole_behind_a_rate_takes_no_more_than_the_rate() -> None:
    lane = Link(0, 1000, up=[Blackhole()], buffer=150).lane(up=True, connection=1)
    lane.enter(0, bytes(150))
    assert (lane.room(0), lane.next_left(0), lane.room(100 * MS), lane.next_at) == (0, 150 * MS, 0, NEVER)
    assert lane.room(150 * MS) == 150
    lane.enter(150 * MS, bytes(100))
    lane.change(200 * MS, Link(0, 1000, buffer=500))  # all of it is sent again, and waits once
    assert (lane.unsent(200 * MS), lane.room(200 * MS)) == (250, 250)
    assert drain(lane) == [(350, 150), (450, 100)]


def lost(stages: list[Stage]) -> list[int]:
    """Which of some packets do not arrive."""
    arrived = {parcel.tag for parcel in out_of(stages, *(Parcel(bytes(100), 0, 0, tag=n) for n in range(1000)))}
    return [n for n in range(1000) if n not in arrived]


def test_chance_is_each_directions_own_and_the_same_each_time() -> None:
    loss = Loss(0.01)
    link = Link(0.1, up=[loss], down=[loss])
    up, down = (lost(link.packet_stages(up=each)) for each in (True, False))
    assert up
    assert down
    assert up != down
    assert (up, down) == tuple(lost(link.packet_stages(up=each)) for each in (True, False))
    assert up != lost(replace(link, seed=1).packet_stages(up=True))
    assert up != lost(Link(0.1, up=[Loss(0.01, seed=1)]).packet_stages(up=True))


def test_two_effects_of_a_kind_have_nothing_in_common() -> None:
    """With the same chance the second would undo what the first does."""
    for stages in both_kinds(Link(0.1, up=[Corrupt(1), Corrupt(1)])):
        (out,) = out_of(stages, Parcel(bytes(1000), 0, 0))
        assert sum(byte.bit_count() for byte in bytes(out.content)) == 2


@pytest.mark.parametrize("connection", [1, 2])
def test_an_open_connection_has_its_own_chance_on_the_next_link_too(connection: int) -> None:
    link = Link(0.1, up=[Corrupt(1)])
    lane = Link(0.1).lane(up=True, connection=connection)
    lane.change(0, link)
    lane.enter(0, bytes(1000))
    (expected,) = out_of(link.stages(up=True, connection=connection), Parcel(bytes(1000), 0, 0))
    assert lane.take().content == expected.content


@pytest.mark.parametrize(
    ("link", "why"),
    [
        (Link(0.1, tcp=TcpModel()), r"TCP's model, .*only the simulated network"),
        (Link(0.1, window=1), r"a window of 1 bytes, .*the kernel's: set net\.ipv4\.tcp_wmem"),
        (Link(0.1, buffer=1), r"a buffer of 1 and .*the kernel's: set net\.ipv4\.tcp_wmem"),
    ],
)
def test_what_means_nothing_to_packets_is_refused(link: Link, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        link.check_packets()


def test_before_it_runs_it_has_counted_nothing() -> None:
    proxy = Proxy(1.0, ("127.0.0.1", 1))
    proxy.close()
    proxy.check()
    assert not proxy.take().used


def test_the_link_has_the_seed_no_model_of_tcp_and_a_buffer_that_is_enough_for_the_rate() -> None:
    assert Proxy(1.0, ("h", 1)).link.buffer == BUFFER
    assert Proxy(1.0, ("h", 1), rate=125_000).link.buffer == BUFFER
    assert Proxy(1.0, ("h", 1), rate=1e9).link.buffer == 1e9 * REFILL
    assert Proxy(1.0, ("h", 1), rate=1e9, buffer=7).link.buffer == 7
    assert Proxy(1.0, ("h", 1)).link.window == WINDOW
    proxy = Proxy(1.0, ("h", 1), seed=5)
    assert proxy.link.seed == 5
    with pytest.raises(ValueError, match="only the simulated network"):
        proxy.change(Link(1.0, tcp=TcpModel()))


def test_a_link_that_it_becomes_has_the_buffer_of_one_that_it_began_with() -> None:
    proxy = Proxy(1.0, ("h", 1), buffer=7)
    proxy.change(Link(0, rate=1e9))
    assert proxy.link == Proxy(0, ("h", 1), rate=1e9).link == filled(Link(0, rate=1e9))
    assert proxy.link.buffer == 1e9 * REFILL
    proxy.change(Link(0, rate=1e9, buffer=7))
    assert proxy.link.buffer == 7
    proxy.change(Link(0))
    assert proxy.link.buffer == BUFFER


def test_a_thread_that_is_late_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with Proxy(0, None) as proxy:
        loop = proxy._thread.loop
        assert loop is not None
        monkeypatch.setattr(module, "STARTING", 0.0)
        loop.call_soon_threadsafe(go.wait)
        for question in (proxy.take, proxy.counts, lambda: proxy.change(Link(1)), lambda: proxy.relay(("h", 1))):
            with pytest.raises(ProxyError, match="the proxy does not answer after 0 s"):
                question()
        go.set()


def test_one_whose_start_is_interrupted_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closing = threading.Event()

    class Late(ProxyThread):
        def run(self) -> None:
            closing.wait()
            super().run()

    monkeypatch.setattr(proxies, "ProxyThread", Late)
    proxy = Proxy(0, None)
    listening = proxy._thread.listening.wait

    def interrupted(_: float) -> bool:
        monkeypatch.setattr(proxy._thread.listening, "wait", waited)
        raise KeyboardInterrupt

    def waited(timeout: float) -> bool:
        closing.set()
        return listening(timeout)

    monkeypatch.setattr(proxy._thread.listening, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        proxy.start()
    thread = threading.Thread(target=proxy.close, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert proxy._thread.thread is not None
    assert not proxy._thread.thread.is_alive()
