"""netem.packets.network: TCP between two, its rounds, and how late the emulator was.

Times are read as whole round trips, of an RTT that a busy machine does not reach by being late.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
from packet_networks import SOON, Source, Start, ask, children, content
from processes import state

from netem.link import Link
from netem.timekeeping import PAUSE

pytestmark = pytest.mark.packets

RTT = 0.2
TRIES = 5
"""Tries of a measurement by the clock: other work of the machine makes it longer, and never shorter."""


def test_slow_start_of_a_fresh_connection(start: Start) -> None:
    """14,480 bytes are the ten segments of an initial window; from there it doubles with each round trip."""
    network = start(Link(RTT))
    with Source(network) as source:
        for size, rounds in ((14_480, 1), (14_600, 2), (100_000, 3)):
            for _ in range(TRIES):
                network.take()
                begun = time.monotonic()
                with source.connect() as client:
                    connected = time.monotonic()
                    ask(client, size)
                    answered = time.monotonic()
                counts = network.take()
                assert connected - begun >= RTT
                assert answered - connected >= rounds * RTT
                found = [round((connected - begun) / RTT), round((answered - connected) / RTT)]
                if found == [1, rounds]:
                    break
            assert found == [1, rounds], f"{size} bytes; the emulator was late by {network.lateness()}"
            assert (counts.rounds, counts.handshake_rounds, counts.connections) == (2, 1, 1)  # of the programs
            assert (counts.bytes_up, counts.bytes_down, counts.repeated) == (len(str(size)) + 1, size, 0)
            assert counts.packets_down >= size / 1448


STOPPED = 0.15
"""Seconds for which an emulator is stopped."""


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    while state(pid) != "T":
        pass


def test_an_emulator_that_was_stopped_as_a_packet_came_knows_how_late_it_was(start: Start) -> None:
    network = start(Link(SOON))
    assert network._process is not None
    (emulator,) = children(network) - {network._process.pid}
    with Source(network) as source, source.connect() as client:
        ask(client, 10)
        network.take()
        stop(emulator)
        client.sendall(b"10\n")
        time.sleep(STOPPED)
        os.kill(emulator, signal.SIGCONT)
        assert client.recv(100) == content(10)
        assert network.lateness() >= STOPPED - PAUSE
