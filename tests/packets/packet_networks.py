"""What tests see of a network from outside: the ways that work here, and the processes that it is made of."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from packet_servers import PATIENCE

from netem.packets.devices import BACKENDS, TUN
from netem.packets.network import SERVER, Packets

Start = Callable[..., Packets]
SOON = 0.004
"""An RTT where none matters."""


def have_tun() -> bool:
    """Whether the node can be opened; `veth` is what must work everywhere."""
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except OSError:
        return False
    return True


WORKING = [backend for backend in BACKENDS if backend != "tun" or have_tun()]


def run(network: Packets, script: str, **options: object) -> int:
    command = network.run(SERVER, ["sh", "-c", script], **options)  # type: ignore[arg-type]
    try:
        return command.wait()
    finally:
        command.close()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def gone(pid: int) -> bool:
    """Whether a process has ended; what is killed by the kernel has not at once."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if state(pid) != "Z":
                time.sleep(0.01)
                continue
        return True
    return False


def children(network: Packets) -> set[int]:
    """The network's first process and all below it."""
    assert network._process is not None
    return below(network._process.pid)


def below(first: int) -> set[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found
