"""netem.packets.network, netem.packets.broker, netem.packets.namespaces: nothing is left afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from on_threads import PATIENCE
from packet_networks import SOON, Start, below, children, gone, run

from netem.link import Link
from netem.packets.errors import PacketsError
from netem.packets.namespaces import Namespace
from netem.packets.network import CLIENT, SERVER, Packets

pytestmark = pytest.mark.packets


DAEMON = "setsid sleep 1000 & setsid sh -c 'sleep 1000' & exit 0"
"""Leaves two processes in sessions of their own behind."""


def leave_daemons(network: Packets) -> list[int]:
    """The processes, as seen from here, of a command and of what its daemons are."""
    pids = children(network)
    assert run(network, DAEMON) == 0
    deadline = time.monotonic() + PATIENCE
    while len(found := children(network) - pids) < 2:
        assert time.monotonic() < deadline
    return sorted(found | pids)


def test_close_ends_whatever_commands_left_behind(start: Start) -> None:
    network = start(Link(SOON))
    pids = leave_daemons(network)
    network.close()
    network.close()
    assert [pid for pid in pids if not gone(pid)] == []
    with pytest.raises(PacketsError, match="not started, or is closed"):
        network.take()


@pytest.mark.parametrize("whose", ["broker", "emulator"])
def test_a_process_that_is_killed_ends_the_run_with_an_error(start: Start, whose: str) -> None:
    network = start(Link(SOON))
    assert network._process is not None
    broker = network._process.pid
    (emulator,) = children(network) - {broker}
    pids = leave_daemons(network)
    command = network.run(SERVER, ["sleep", "1000"])
    os.kill(broker if whose == "broker" else emulator, signal.SIGKILL)
    if whose == "broker":
        with pytest.raises(PacketsError, match="the network ended while a command ran"):
            command.wait()
    else:
        assert command.wait() == -signal.SIGKILL
    command.close()
    with pytest.raises(PacketsError, match=f"the {whose} of the packet network failed|a process of the"):
        network.take()
    network.close()
    assert [pid for pid in pids if not gone(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_process_that_uses_it(start: Start, number: int) -> None:
    start(Link(SOON)).close()  # or skip
    script = (
        "import sys, time; from netem.packets.network import Packets; from netem.link import Link\n"
        "network = Packets(Link(0.004)); network.start()\n"
        "network.run(0, ['sh', '-c', 'setsid sleep 1000 & sleep 1000'])\n"
        "print(network._process.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=Path(__file__).parents[2],
    ) as user:  # fmt: skip
        assert user.stdout is not None
        pids = below(int(user.stdout.readline()))
        user.send_signal(number)
    assert [pid for pid in pids if not gone(pid)] == []


def test_what_cannot_be_is_named(start: Start) -> None:
    start(Link(SOON)).close()  # or skip
    with pytest.raises(Exception, match=r"cannot create a packet network: a route with congestion control no-such: "):
        Packets(Link(SOON), congestion="no-such").start()


def test_descriptors_are_given_back(start: Start) -> None:
    network = start(Link(SOON))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run(network, "true")
        with network.listen():
            pass
        with contextlib.suppress(FileNotFoundError):
            network.run(CLIENT, ["no-such-program"])
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_namespace_is_left_again(start: Start) -> None:
    network = start(Link(SOON))
    home = os.readlink("/proc/thread-self/ns/net")
    if os.getuid() == 0:
        namespace = Namespace()
        with namespace.entered():
            assert os.readlink("/proc/thread-self/ns/net") != home
        with contextlib.suppress(KeyError), namespace.entered():
            raise KeyError
        namespace.close()
        namespace.close()
    network.check()
    assert os.readlink("/proc/thread-self/ns/net") == home
