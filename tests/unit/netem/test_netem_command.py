"""netem.packets.command: a pipe that the status comes out of."""

from __future__ import annotations

import fcntl
import os
import resource

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


def test_a_descriptor_beyond_those_of_select() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    reading, writing = os.pipe()
    command = Command(NOBODY, fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 1024))
    try:
        assert not command.ended()
        os.close(writing)
        assert command.ended()
    finally:
        command.close()
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
