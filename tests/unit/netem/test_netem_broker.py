"""netem.packets.broker: which kind of device is taken. The rest of it is tried in tests/packets."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import pytest

from netem.packets import broker, devices
from netem.packets.errors import Unavailable

NO_NODE = FileNotFoundError(errno.ENOENT, "No such file or directory", "/dev/net/tun")
NO_PAIR = OSError(errno.EOPNOTSUPP, "a pair of veth interfaces: Operation not supported")


def joined(monkeypatch: pytest.MonkeyPatch, errors: Mapping[str, OSError]) -> str:
    def join(backend: str, sides: Any, **_: Any) -> Any:
        if backend in errors:
            raise errors[backend]
        return "ports"

    monkeypatch.setattr(devices, "join", join)
    monkeypatch.setattr(broker, "Namespace", object)
    backend, _, ports = broker._join(devices.BACKENDS, "cubic")
    assert ports == "ports"
    return backend


def test_the_first_kind_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    assert joined(monkeypatch, {}) == "tun"
    assert joined(monkeypatch, {"tun": NO_NODE}) == "veth"


def test_none_works_and_each_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable) as caught:
        joined(monkeypatch, {"tun": NO_NODE, "veth": NO_PAIR})
    assert str(caught.value) == (
        "no packet network here: tun: No such file or directory: /dev/net/tun; "
        "veth: a pair of veth interfaces: Operation not supported"
    )
