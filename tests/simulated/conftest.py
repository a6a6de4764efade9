"""A server in memory behind a simulated link of 1000 ms; what is random is not, so that a run is the same each time."""

from __future__ import annotations

import os
import random

import pytest
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bytes from a seed, of which the first is 255.

    The first two of a request's id travel as a number (doc/design/0006-marks.md), in fewer bytes where it is small: an
    answer that is cut at its last byte was a byte shorter the next time, one time in two hundred.
    """
    chance = random.Random(6)
    monkeypatch.setattr(os, "urandom", lambda size: (b"\xff" + chance.randbytes(size))[:size])


@pytest.fixture
def joint(network: SimulatedNetwork) -> Joint:
    return Joint(network)
