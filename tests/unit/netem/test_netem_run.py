"""netem.run: how long a server is waited for; a fake network has none that listens. The rest is in tests/packets."""

from __future__ import annotations

import os
from typing import Any

import pytest

from netem import run
from netem.packets.command import Command
from netem.run import Crossing, RunError

NOBODY = 2**22 + 1
"""No process has a number so high."""


class Network:
    """Its servers never listen."""

    server_address = "192.0.2.1"

    def __init__(self) -> None:
        self._writing: list[int] = []

    def start(self) -> None: ...

    def close(self) -> None:
        for descriptor in self._writing:
            os.close(descriptor)

    def run(self, *_: Any, **__: Any) -> Command:
        reading, writing = os.pipe()
        self._writing.append(writing)
        return Command(NOBODY, reading)

    def listening(self, *_: Any, **__: Any) -> int:
        return 0


def test_a_server_that_never_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WAITING", -1.0)
    monkeypatch.setattr(run, "LISTENING", -1.0)
    network: Any = Network()
    said: list[str] = []
    with pytest.raises(RunError, match=r"^the server sleep 100 does not listen on a TCP port after "):
        Crossing(network, ["sleep 100"], on_waiting=said.append).__enter__()
    assert said == ["waiting for the server sleep 100 to listen on a TCP port"]
