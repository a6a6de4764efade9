"""A network as tests see it from outside: the processes that it is made of; and a server on a thread, which sends the
number of bytes that it is asked for."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Self

from on_threads import PATIENCE, Server
from on_threads import read as read_from
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


def answer(connection: socket.socket) -> None:
    """Send as many bytes as each line asks for."""
    with connection.makefile("rb") as lines:
        for line in lines:
            connection.sendall(content(int(line)))


class Source:
    """Sends as many bytes as a line asks for, until the client ends. The link may be down meanwhile."""

    def __init__(self, network: Packets) -> None:
        self._network, self._server = network, Server(answer, network.listen(), hangs_up=True)
        self.port = self._server.address[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def connect(self) -> socket.socket:
        client = self._network.connect(self.port)
        client.settimeout(PATIENCE)
        return client


def content(size: int) -> bytes:
    return (b"0123456789abcde\n" * (size // 16 + 1))[:size]


def ask(client: socket.socket, size: int) -> bytes:
    """Ask for so many bytes, and read them."""
    client.sendall(b"%d\n" % size)
    return read_from(client, size)
