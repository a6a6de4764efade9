"""netem.packets.netlink: messages as bytes. What the kernel says to them is tried in tests/packets."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netem.packets import netlink


@given(st.integers(0, 65535), st.binary(max_size=50))
def test_an_attribute_says_its_length_and_is_filled_up(kind: int, value: bytes) -> None:
    made = netlink.attribute(kind, value)
    assert struct.unpack_from("=HH", made) == (4 + len(value), kind)
    assert made[4 : 4 + len(value)] == value
    assert len(made) % 4 == 0
    assert len(made) - 4 - len(value) < 4


@given(st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_a_message_says_its_length_and_asks_for_an_answer(kind: int, flags: int, number: int, body: bytes) -> None:
    made = netlink.message(kind, flags, number, body)
    assert struct.unpack_from("=IHHII", made) == (16 + len(body), kind, flags | 1 | 4, number, 0)
    assert made[16:] == body


@pytest.mark.parametrize(("error", "found"), [(0, 0), (-17, 17)])
def test_an_answer_to_us(error: int, found: int) -> None:
    assert netlink.acknowledged(struct.pack("=IHHIIi", 36, 2, 0, 7, 0, error) + bytes(16), 7) == found


@pytest.mark.parametrize(("kind", "number"), [(2, 8), (16, 7)])
def test_an_answer_to_another_or_of_another_kind(kind: int, number: int) -> None:
    assert netlink.acknowledged(struct.pack("=IHHIIi", 36, kind, 0, number, 0, -17), 7) is None
