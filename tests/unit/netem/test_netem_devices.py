"""netem.packets.devices: whose a setting is. Devices are tried in tests/packets."""

from __future__ import annotations

import pytest

from netem.packets.devices import check_setting


def test_a_setting_of_the_network() -> None:
    check_setting("net.ipv4.conf.all.rp_filter")


@pytest.mark.parametrize(
    "name", ["vm.swappiness", "kernel.pid_max", "net", "netx.a", "net./a", "net...vm.swappiness", ""]
)
def test_a_setting_of_the_whole_machine_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name!r} is no setting of the network"):
        check_setting(name)
