"""netem.packets.devices: how many packets a frame is, and whose a setting is. Devices are tried in tests/packets."""

from __future__ import annotations

import struct

import pytest

from netem.packets.devices import VIRTIO_BYTES, check_setting, packets_in


@pytest.mark.parametrize(
    ("train", "segment", "content", "packets"),
    [(0, 0, 1448, 1), (0, 0, 0, 1), (1, 1448, 1448, 1), (1, 1448, 1449, 2), (1, 1448, 14480, 10), (1, 1448, 0, 1)],
)
@pytest.mark.parametrize("ethernet", [0, 14])
def test_packets_of_a_train(train: int, segment: int, content: int, packets: int, ethernet: int) -> None:
    headers = ethernet + 52
    frame = struct.pack("=BBHHHH", 1, train, headers, segment, 0, 0) + bytes(headers + content)
    assert packets_in(frame, VIRTIO_BYTES + ethernet) == packets


def test_a_setting_of_the_network() -> None:
    check_setting("net.ipv4.conf.all.rp_filter")


@pytest.mark.parametrize(
    "name", ["vm.swappiness", "kernel.pid_max", "net", "netx.a", "net./a", "net...vm.swappiness", ""]
)
def test_a_setting_of_the_whole_machine_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name!r} is no setting of the network"):
        check_setting(name)
