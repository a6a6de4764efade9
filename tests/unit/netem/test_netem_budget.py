from __future__ import annotations

import pytest
from simulated_servers import Echo

from netem.budget import SHOWN_MESSAGES, explain, round_trips
from netem.link import Link
from netem.simulated import SimulatedNetwork, SimulatedStream


def pings(stream: SimulatedStream, times: int) -> None:
    for _ in range(times):
        stream.send(b"ping")
        stream.read(9)


def test_an_error_in_the_block_is_the_one_seen() -> None:
    net = SimulatedNetwork(Link(1.0))
    with pytest.raises(ConnectionRefusedError), round_trips(net, at_most=0):
        net.connect(None)


def test_a_long_list_is_cut() -> None:
    net = SimulatedNetwork(Link(1.0))
    pings(net.connect(Echo), SHOWN_MESSAGES)
    lines = explain(net.take()).splitlines()
    assert sum(line.startswith("  connection") for line in lines) == SHOWN_MESSAGES
    assert lines[-1] == f"  and {SHOWN_MESSAGES} messages more"
