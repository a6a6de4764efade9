"""A server in memory behind a simulated link of 1000 ms; ids that take the same room each time."""

from __future__ import annotations

import os
import random

import pytest
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork
from smartserver.store.history import History
from smartserver.store.record import Record


@pytest.fixture(autouse=True)
def numbers_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are drawn from a seed, and the first byte of a record's hash, where a mark is made of it, is 128 or more.

    A mark travels as a number (doc/design/0006-messages.md), in fewer bytes where it is small: a request or an answer
    that is cut at its last byte was a byte shorter the next time, one time in two hundred.
    """
    chance = random.Random(6)
    monkeypatch.setattr(os, "urandom", lambda size: (b"\xff" + chance.randbytes(size))[:size])
    extend = History.extend

    def extended(history: History, record: Record, record_hash: bytes) -> None:
        extend(history, record, bytes((record_hash[0] | 0x80,)) + record_hash[1:])

    monkeypatch.setattr(History, "extend", extended)


@pytest.fixture
def joint(network: SimulatedNetwork) -> Joint:
    return Joint(network)
