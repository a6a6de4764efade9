"""A network as tests see it from outside: the processes that it is made of."""

from __future__ import annotations

import time
from collections.abc import Callable

from on_threads import PATIENCE
from processes import is_alive, processes, read

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


def gone(pid: int) -> bool:
    """True if a process has ended; one that the kernel kills has not at once."""
    deadline = time.monotonic() + PATIENCE
    while (alive := is_alive(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive


def children(network: Packets) -> set[int]:
    """The network's first process and all below it."""
    assert network._process is not None
    return below(network._process.pid)


def below(first: int) -> set[int]:
    fields = {pid: read(pid, "stat").decode(errors="replace").rpartition(")")[2].split() for pid in processes()}
    parents = {pid: int(each[1]) for pid, each in fields.items() if each}
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found
