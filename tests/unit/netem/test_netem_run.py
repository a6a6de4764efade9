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
SAID = "waiting for the server sleep 100 to listen on a TCP port"


class Network:
    """Its servers listen when it has been looked at so many times."""

    server_address = "192.0.2.1"

    def __init__(self, looks: float) -> None:
        self._looks = looks
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
        self._looks -= 1
        return int(self._looks < 0)


def crossing(looks: float, said: list[str]) -> Crossing:
    network: Any = Network(looks)
    return Crossing(network, ["sleep 100"], on_waiting=said.append)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WAITING", -1.0)


def test_a_server_that_never_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LISTENING", -1.0)
    said: list[str] = []
    with pytest.raises(RunError, match=r"^the server sleep 100 does not listen on a TCP port after "):
        crossing(float("inf"), said).__enter__()
    assert said == [SAID]
