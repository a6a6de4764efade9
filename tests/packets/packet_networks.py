"""A network as tests see it from outside: the processes that it is made of."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from packet_servers import PATIENCE

from netem.packets.network import SERVER, Packets

Start = Callable[..., Packets]
SOON = 0.004
"""An RTT where none matters."""


def run(network: Packets, script: str, **options: object) -> int:
    command = network.run(SERVER, ["sh", "-c", script], **options)  # type: ignore[arg-type]
    try:
        return command.wait()
    finally:
        command.close()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def gone(pid: int) -> bool:
    """True if a process has ended; one that the kernel kills has not at once."""
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
