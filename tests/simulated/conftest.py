"""A server in memory behind a simulated link of 1000 ms; ids that take the same room each time."""

from __future__ import annotations

import os
import random

import pytest
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork


@pytest.fixture(autouse=True)
def ids_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client draws its ids from a seed, and their first byte is 255.

    The first two bytes of a request's id travel as a number (doc/design/0006-marks.md), in fewer bytes where it is
    small: an answer that is cut at its last byte was a byte shorter the next time, one time in two hundred.
    """
    chance = random.Random(6)
    monkeypatch.setattr(os, "urandom", lambda size: (b"\xff" + chance.randbytes(size))[:size])


@pytest.fixture
def joint(network: SimulatedNetwork) -> Joint:
    return Joint(network)
