"""netem.packets.tcp, trains, segments: known segments and any bytes, and what a counter is told of them."""

from __future__ import annotations

import struct

import pytest
from frames import ACK, CLIENT, CWR, FIN, PSH, RST, SERVER, SYN, frame, train
from hypothesis import given
from hypothesis import strategies as st

from netem.counter import Counter, Counts
from netem.packets.segments import SegmentCounter
from netem.packets.tcp import Segment, parse, turned
from netem.packets.trains import VIRTIO_BYTES, cut, packets_in


@given(
    number=st.integers(0, 2**32 - 1),
    size=st.integers(0, 3000),
    options=st.integers(0, 10).map(lambda words: 4 * words),
    flags=st.integers(0, 255),
    up=st.booleans(),
    header=st.integers(0, 30),
    filling=st.integers(0, 20),
    acknowledged=st.integers(0, 2**32 - 1),
)
def test_what_was_written_is_read(
    number: int, size: int, options: int, flags: int, up: bool, header: int, filling: int, acknowledged: int
) -> None:
    made = frame(number, size, flags, up=up, header=header, options=options, acknowledged=acknowledged) + bytes(filling)
    (source, source_port), (target, target_port) = (CLIENT, SERVER) if up else (SERVER, CLIENT)
    ends = source + target + struct.pack("!HH", source_port, target_port)
    assert parse(made, header) == Segment(ends, number, size, flags, acknowledged)
    assert turned(ends) == target + source + struct.pack("!HH", target_port, source_port)


@given(st.binary(max_size=100), st.integers(0, 30))
def test_any_bytes_are_a_segment_or_none(content: bytes, at: int) -> None:
    found = parse(content, at)
    assert found is None or 0 <= found.size <= len(content) - 40


@given(st.integers(0, 59), st.integers(0, 255))
def test_a_damaged_or_short_packet_raises_nothing(at: int, value: int) -> None:
    made = bytearray(frame(1, 20, header=0))
    made[at] = value
    parse(bytes(made), 0)
    parse(bytes(made[:at]), 0)


def test_a_train_too_long_for_its_header() -> None:
    made = bytearray(frame(7, 60_000, header=0))
    made[2:4] = bytes(2)
    segment = parse(bytes(made), 0)
    assert segment is not None
    assert segment.size == 60_000


@pytest.mark.parametrize(("at", "value"), [(0, 0x65), (9, 17)])
def test_ipv6_and_udp_are_none(at: int, value: int) -> None:
    made = bytearray(frame(1, 20, header=0))
    made[at] = value
    assert parse(bytes(made), 0) is None


@pytest.mark.parametrize(
    ("size", "segment", "packets"), [(1448, 1448, 1), (1449, 1448, 2), (14480, 1448, 10), (0, 1448, 1), (3, 1, 3)]
)
@pytest.mark.parametrize("ethernet", [0, 14])
@pytest.mark.parametrize("kind", ["tcp", "tcp with congestion reported", "udp"])
def test_packets_of_a_train(size: int, segment: int, packets: int, ethernet: int, kind: str) -> None:
    made = train(1, size, segment, ethernet=ethernet, udp=kind == "udp", marked=kind.endswith("reported"))
    assert packets_in(made, VIRTIO_BYTES + ethernet) == packets
    assert len(cut(made, VIRTIO_BYTES + ethernet)) == packets


@pytest.mark.parametrize("made", [frame(1, 100), frame(1), b"anything, longer than a header", bytes(VIRTIO_BYTES)])
def test_what_is_no_train_is_one_packet(made: bytes) -> None:
    assert packets_in(made, VIRTIO_BYTES) == 1
    assert cut(made, VIRTIO_BYTES) == [made]


@given(st.binary(min_size=8, max_size=120), st.integers(10, 24))
def test_any_bytes_are_some_packets(content: bytes, at: int) -> None:
    for virtio in (b"\1\1", b"\1\5"):
        made = virtio + content
        assert packets_in(made, at) == len(cut(made, at)) >= 1


def summed(content: bytes) -> int:
    """The sum of RFC 1071: 0xFFFF for what holds its own checksum."""
    padded = content + bytes(len(content) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def finished(packet: bytes, start: int, field: int) -> bytes:
    """Return the segment with its checksum, over the bytes from `start` on and the pseudo-header's sum."""
    made = bytearray(packet)
    struct.pack_into("!H", made, start + field, ~summed(packet[start:]) & 0xFFFF)
    return bytes(made)


@given(
    number=st.integers(0, 2**32 - 1),
    name=st.integers(0, 0xFFFF),
    size=st.integers(1, 9000),
    segment=st.integers(400, 1448),
    options=st.sampled_from([0, 12, 40]),
    ethernet=st.sampled_from([0, 14]),
    udp=st.booleans(),
)
def test_the_packets_are_right_and_hold_what_the_train_did(
    number: int, name: int, size: int, segment: int, options: int, ethernet: int, udp: bool
) -> None:
    made = train(number, size, segment, ethernet=ethernet, options=0 if udp else options, udp=udp, name=name)
    at = VIRTIO_BYTES + ethernet
    content = b""
    pieces = cut(made, at)
    for order, piece in enumerate(pieces):
        assert piece[VIRTIO_BYTES:at] == made[VIRTIO_BYTES:at]
        if len(pieces) > 1:
            assert piece[:VIRTIO_BYTES] == made[:1] + bytes(5) + made[6:VIRTIO_BYTES]
        packet = piece[at:]
        total, named = struct.unpack_from("!HH", packet, 2)
        assert (total, named) == (len(packet), (name + order) & 0xFFFF)
        assert len(pieces) == 1 or summed(packet[:20]) == 0xFFFF
        pseudo = packet[12:20] + struct.pack("!HH", packet[9], total - 20)
        if udp:
            if len(pieces) > 1:
                assert struct.unpack_from("!H", packet, 24) == (total - 20,)
                assert summed(pseudo + finished(packet, 20, 6)[20:]) == 0xFFFF
            content += packet[28:]
        else:
            found = parse(piece, at)
            assert found is not None
            assert (found.number, found.acknowledged) == ((number + len(content)) & 0xFFFFFFFF, 77)
            assert found.size <= segment
            assert len(pieces) == 1 or summed(pseudo + finished(packet, 20, 16)[20:]) == 0xFFFF
            content += packet[40 + options :]
    assert content == b"x" * size


def test_what_the_first_and_the_last_say_alone() -> None:
    flags = [piece.flags for piece in map(parsed, cut(train(1, 3000, 1000, flags=ACK | PSH | FIN | CWR), VIRTIO_BYTES))]
    assert flags == [ACK | CWR, ACK, ACK | PSH | FIN]


def parsed(made: bytes) -> Segment:
    found = parse(made, VIRTIO_BYTES)
    assert found is not None
    return found


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
