"""netem.packets.devices: whose a setting is, and what fails half-way. Devices are tried in tests/packets."""

from __future__ import annotations

import os
from typing import Any

import pytest

from netem.packets import devices
from netem.packets.devices import Port, check_setting


def test_a_setting_of_the_network() -> None:
    check_setting("net.ipv4.conf.all.rp_filter")


@pytest.mark.parametrize(
    "name", ["vm.swappiness", "kernel.pid_max", "net", "netx.a", "net./a", "net...vm.swappiness", ""]
)
def test_a_setting_of_the_whole_machine_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name!r} is no setting of the network"):
        check_setting(name)


class Half:
    """The steps of `join`, each of which opens a real descriptor, and the n-th of which fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
        self._left = fails
        monkeypatch.setattr(devices, "Namespace", self)
        monkeypatch.setattr(devices, "_open_tun", self._port)
        monkeypatch.setattr(devices, "_open_veth", self._port)
        monkeypatch.setattr(devices, "_set_up", self._step)

    def __call__(self) -> Any:
        """The hub's namespace."""
        self._step()
        return open(os.devnull, "rb")

    def _step(self, *_: Any, **__: Any) -> None:
        if not self._left:
            raise PermissionError
        self._left -= 1

    def _port(self, *_: Any) -> Port:
        self._step()
        return Port(os.open(os.devnull, os.O_RDONLY), 10)


@pytest.mark.parametrize(("backend", "steps"), [("tun", 4), ("veth", 5)])
def test_a_kind_that_fails_half_way_leaves_no_descriptor(
    backend: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.listdir("/proc/self/fd")
    sides: Any = (None, None)
    for fails in range(steps):
        Half(monkeypatch, fails)
        with pytest.raises(PermissionError):
            devices.join(backend, sides, congestion="cubic")
        assert os.listdir("/proc/self/fd") == before, f"step {fails} left one"
    Half(monkeypatch, steps)
    for port in devices.join(backend, sides, congestion="cubic"):
        os.close(port.descriptor)
    assert os.listdir("/proc/self/fd") == before
