"""netem.packets.segments: what a counter is told of the segments of a link."""

from __future__ import annotations

import pytest
from frames import ACK, FIN, RST, SYN, frame
from hypothesis import given
from hypothesis import strategies as st

from netem.counter import Counter, Counts
from netem.packets.segments import SegmentCounter

MOST = 2**32 - 1


class Wire:
    """A link without delay, given segments by hand."""

    def __init__(self, client: int = 1000, server: int = 5000) -> None:
        self.segments = SegmentCounter(Counter())
        self.client, self.server = client, server
        self.now = 0

    def pass_(self, made: bytes, *, up: bool, lost: bool = False) -> None:
        self.now += 1
        seen = self.segments.sent(made, 10, self.now, up=up)
        if seen is not None and not lost:
            seen.delivered(self.now)

    def open(self) -> None:
        self.pass_(frame(self.client, flags=SYN), up=True)
        self.pass_(frame(self.server, flags=SYN | ACK, up=False), up=False)
        self.pass_(frame(self.client + 1), up=True)

    def up(self, at: int, size: int, flags: int = ACK, *, lost: bool = False) -> None:
        self.pass_(frame(self.client + 1 + at, size, flags), up=True, lost=lost)

    def down(self, at: int, size: int, flags: int = ACK, *, lost: bool = False) -> None:
        self.pass_(frame(self.server + 1 + at, size, flags, up=False), up=False, lost=lost)

    @property
    def counts(self) -> Counts:
        return self.segments.counter.counts()


def rounds(wire: Wire) -> tuple[int, int]:
    return wire.counts.rounds, wire.counts.handshake_rounds


def test_a_reset_of_an_open_connection_is_none() -> None:
    wire = Wire()
    wire.open()
    before = wire.counts.seconds
    wire.down(0, 0, RST)
    assert (wire.counts.seconds, rounds(wire)) == (before, (1, 1))


def test_other_ports_or_another_syn_are_another_connection() -> None:
    wire = Wire()
    wire.open()
    wire.pass_(frame(wire.client, flags=SYN, port=40001), up=True)
    wire.client = 7777
    wire.open()
    assert wire.counts.connections == 3


def test_the_end_of_a_stream_belongs_to_its_bytes() -> None:
    wire = Wire()
    wire.open()
    wire.up(0, 5, ACK | FIN)
    wire.down(0, 3)
    wire.down(3, 0, ACK | FIN)
    wire.down(3, 0, ACK | FIN)
    assert [(message.size, message.end) for message in wire.counts.messages] == [(5, True), (3, True)]
    assert (wire.counts.repeated, rounds(wire)) == (1, (2, 1))


def known(wire: Wire) -> int:
    return len({id(each) for each in wire.segments._connections.values()})


def test_a_connection_is_forgotten_when_both_ends_were_acknowledged() -> None:
    wire = Wire(MOST - 3)  # its end wraps
    wire.open()
    up, down = wire.client + 1 + 5 + 1, wire.server + 1 + 3 + 1
    wire.up(0, 5, ACK | FIN)
    wire.pass_(frame(wire.server + 1, 0, up=False, acknowledged=up - 1), up=False)  # not its end
    wire.pass_(frame(wire.server + 1, 3, ACK | FIN, up=False, acknowledged=up), up=False)
    wire.pass_(frame(up, acknowledged=down), up=True, lost=True)
    wire.pass_(frame(wire.server + 1, 3, ACK | FIN, up=False, acknowledged=up), up=False)
    assert (known(wire), wire.counts.repeated) == (1, 1)
    wire.pass_(frame(up, acknowledged=down), up=True)
    assert (known(wire), wire.counts.bytes_up, wire.counts.bytes_down) == (0, 5, 3)


@pytest.mark.parametrize("up", [True, False])
def test_a_connection_is_forgotten_when_it_was_broken(up: bool) -> None:
    wire = Wire()
    wire.open()
    wire.pass_(frame(7, flags=RST, up=up), up=up, lost=True)
    assert known(wire) == 1
    late = wire.segments.sent(frame(7, flags=RST, up=up), 10, 100, up=up)
    wire.client = 9000
    wire.open()
    assert late is not None
    late.delivered(200)  # that was the one before
    assert known(wire) == 1
    wire.pass_(frame(7, flags=RST, up=up), up=up)
    assert known(wire) == 0


def test_fast_open_refused_by_a_reset_has_waited() -> None:
    wire = Wire()
    wire.pass_(frame(wire.client, 9, SYN), up=True)
    wire.pass_(frame(0, flags=RST | ACK, up=False, acknowledged=wire.client + 10), up=False)
    assert (wire.counts.bytes_up, wire.counts.connections, rounds(wire)) == (0, 1, (1, 1))


@pytest.mark.parametrize("client", [1000, MOST, MOST - 5])
@pytest.mark.parametrize("lost", [False, True])
def test_fast_open_refused_waits_for_a_handshake_and_its_bytes_count_once(client: int, lost: bool) -> None:
    """By a server that may not, or because the system sent the SYN again without them."""
    wire = Wire(client)
    wire.pass_(frame(wire.client, 9, SYN), up=True, lost=lost)
    if lost:
        wire.pass_(frame(wire.client, flags=SYN), up=True)
    for _ in range(2):  # a copy decides nothing anew
        wire.pass_(frame(wire.server, flags=SYN | ACK, up=False, acknowledged=wire.client + 1), up=False)
    assert not wire.counts.messages
    wire.up(0, 9)
    wire.down(0, 7)
    counts = wire.counts
    assert (counts.connections, counts.bytes_up, counts.flights_up, counts.repeated) == (1, 9, 1, 0)
    assert ([message.size for message in counts.messages], rounds(wire)) == ([9, 7], (2, 1))


def test_fast_open_refused_after_another_operation_began() -> None:
    wire = Wire()
    wire.pass_(frame(wire.client, 9, SYN), up=True)
    wire.segments.begin(Counter())
    wire.pass_(frame(wire.server, flags=SYN | ACK, up=False, acknowledged=wire.client + 1), up=False)
    wire.up(0, 9)
    wire.down(0, 7)
    assert (wire.counts.bytes_up, wire.counts.repeated, rounds(wire)) == (9, 0, (1, 0))


def test_what_began_before_the_counter_is_left_out() -> None:
    wire = Wire()
    wire.up(0, 5)
    assert not wire.counts.used


def test_what_is_on_the_way_belongs_to_the_operation_it_was_sent_in() -> None:
    wire = Wire()
    wire.open()
    wire.up(0, 5)
    wire.down(0, 7)
    before = wire.segments.counter
    late = wire.segments.sent(frame(wire.client + 6, 0, ACK | FIN), 10, 100, up=True)
    wire.segments.begin(Counter())
    assert late is not None
    late.delivered(200)
    assert before.counts().messages[-1].delivered == 200e-9
    wire.client = 9000
    wire.open()
    wire.up(0, 5)
    wire.down(0, 7)
    assert rounds(wire) == (2, 1)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=20), st.integers(0, MOST), st.randoms(use_true_random=False))
def test_any_copies_in_any_order_add_no_byte(sizes: list[int], client: int, chance: object) -> None:
    wire = Wire(client)
    wire.open()
    at, sent = 0, []
    for size in sizes:
        wire.up(at, size)
        sent.append((at, size))
        at += size
    for place, size in chance.sample(sent, len(sent)):  # type: ignore[attr-defined]
        wire.up(place, size)
    assert (wire.counts.bytes_up, wire.counts.repeated, wire.counts.flights_up) == (sum(sizes), len(sizes), 1)
