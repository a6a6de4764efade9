"""netem.packets.devices, netem.packets.netlink: whose a setting is, and messages as bytes; the rest needs a kernel."""

from __future__ import annotations

import struct

import pytest

from netem.packets import netlink
from netem.packets.devices import check_setting


def test_a_setting_of_the_network() -> None:
    check_setting("net.ipv4.conf.all.rp_filter")


@pytest.mark.parametrize(
    "name", ["vm.swappiness", "kernel.pid_max", "net", "netx.a", "net./a", "net...vm.swappiness", ""]
)
def test_a_setting_of_the_whole_machine_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name!r} is no setting of the network"):
        check_setting(name)


@pytest.mark.parametrize(("error", "found"), [(0, 0), (-17, 17)])
def test_an_answer_to_us(error: int, found: int) -> None:
    assert netlink.acknowledged(struct.pack("=IHHIIi", 36, 2, 0, 7, 0, error) + bytes(16), 7) == found


@pytest.mark.parametrize(("kind", "number"), [(2, 8), (16, 7)])
def test_an_answer_to_another_or_of_another_kind(kind: int, number: int) -> None:
    assert netlink.acknowledged(struct.pack("=IHHIIi", 36, kind, 0, number, 0, -17), 7) is None
