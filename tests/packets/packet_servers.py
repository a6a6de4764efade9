"""A server on a thread for tests of the packet network: asked for a number of bytes, it sends them."""

from __future__ import annotations

import socket
from typing import Self

from on_threads import PATIENCE, Server, read

from netem.packets.network import Packets


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
    return read(client, size)
