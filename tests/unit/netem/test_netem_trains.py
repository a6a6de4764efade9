"""netem.packets.trains: a train of segments, and the packets it is on the wire."""

from __future__ import annotations

import struct

import pytest
from frames import ACK, CWR, FIN, PSH, frame, train
from hypothesis import given
from hypothesis import strategies as st

from netem.packets.tcp import Segment, parse
from netem.packets.trains import VIRTIO_BYTES, cut, packets_in


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
    """With the checksum made of what stands from `start` on, the sum of the pseudo-header included."""
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
