"""netem.packets.command: a pipe that the status comes out of."""

from __future__ import annotations

import os

import pytest

from netem.packets.command import Command
from netem.packets.errors import PacketsError

NOBODY = 2**22 + 1
"""No process has a number so high."""


@pytest.mark.parametrize("status", [0, 7, -15])
def test_the_status_is_kept(status: int) -> None:
    reading, writing = os.pipe()
    command = Command(NOBODY, reading)
    assert not command.ended()
    command.kill()  # gone a moment ago
    os.write(writing, str(status).encode())
    os.close(writing)
    assert command.ended()
    assert (command.wait(), command.wait()) == (status, status)
    command.kill()
    command.close()
    command.close()


def test_a_network_that_ended_first() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    command = Command(NOBODY, reading)
    with pytest.raises(PacketsError, match="the network ended while a command ran"):
        command.wait()
    command.close()
