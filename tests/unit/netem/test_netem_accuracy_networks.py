"""netem.accuracy_networks: the simulator alone; those of sockets are in tests/sockets."""

from __future__ import annotations

import pytest

from netem.accuracy import measure
from netem.accuracy_networks import Simulation
from netem.lateness import Lateness


@pytest.mark.parametrize("rtt", [0.01, 0.1, 1.0, 0.12345678])
def test_the_simulator_is_exact(rtt: float) -> None:
    found = measure(Simulation(), echoes={rtt: 100}, bulk=3_000_000, exchanges=100)
    assert [late.answers for late in found.late.values()] == [Lateness()]
    assert found.packets_per_second is None
    assert found.bytes_per_second > 0
    assert found.messages_per_second > 0
