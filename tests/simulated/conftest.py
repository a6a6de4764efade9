"""A server in memory behind a simulated link of 1000 ms."""

from __future__ import annotations

import pytest
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork


@pytest.fixture
def joint(network: SimulatedNetwork) -> Joint:
    return Joint(network)
