"""netem.packets.tcp: known segments, and any bytes at all."""

from __future__ import annotations

import struct

import pytest
from frames import CLIENT, SERVER, frame
from hypothesis import given
from hypothesis import strategies as st

from netem.packets.tcp import Segment, parse, turned


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
