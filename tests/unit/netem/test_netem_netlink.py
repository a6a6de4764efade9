"""netem.packets.netlink: messages as bytes. What the kernel says to them is tried in tests/packets."""

from __future__ import annotations

import struct

import pytest

from netem.packets import netlink


@pytest.mark.parametrize(("error", "found"), [(0, 0), (-17, 17)])
def test_an_answer_to_us(error: int, found: int) -> None:
    assert netlink.acknowledged(struct.pack("=IHHIIi", 36, 2, 0, 7, 0, error) + bytes(16), 7) == found


@pytest.mark.parametrize(("kind", "number"), [(2, 8), (16, 7)])
def test_an_answer_to_another_or_of_another_kind(kind: int, number: int) -> None:
    assert netlink.acknowledged(struct.pack("=IHHIIi", 36, kind, 0, number, 0, -17), 7) is None
