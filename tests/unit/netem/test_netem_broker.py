"""netem.packets.broker: which kind of device is taken. The rest of it is tried in tests/packets."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

import pytest

from netem.packets import broker, devices
from netem.packets.errors import Unavailable


class Open:
    """A namespace by name; it holds a descriptor as a real one does."""

    def __init__(self) -> None:
        self._descriptor = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        os.close(self._descriptor)


NO_NODE = FileNotFoundError(errno.ENOENT, "No such file or directory", "/dev/net/tun")
NO_PAIR = OSError(errno.EOPNOTSUPP, "a pair of veth interfaces: Operation not supported")


def joined(monkeypatch: pytest.MonkeyPatch, errors: Mapping[str, OSError]) -> str:
    def join(backend: str, sides: Any, **_: Any) -> Any:
        if backend in errors:
            raise errors[backend]
        return "ports"

    monkeypatch.setattr(devices, "join", join)
    monkeypatch.setattr(broker, "Namespace", Open)
    before = os.listdir("/proc/self/fd")
    try:
        backend, sides, ports = broker._join(devices.BACKENDS, "cubic")
        assert ports == "ports"
        for side in sides:
            side.close()
    finally:
        assert os.listdir("/proc/self/fd") == before, "a kind that failed left a namespace open"
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


def test_a_second_namespace_that_cannot_be_closes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Open] = []

    def one() -> Open:
        if made:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(Open())
        return made[0]

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(broker, "Namespace", one)
    with pytest.raises(Unavailable, match="tun: Too many open files"):
        broker._join(["tun"], "cubic")
    assert os.listdir("/proc/self/fd") == before
