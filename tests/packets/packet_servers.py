"""A server on a thread for tests of the packet network: asked for a number of bytes, it sends them."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from netem.packets.network import Packets

PATIENCE = 30.0
"""Seconds after which a test is stuck; nothing waits for it otherwise."""


class Source:
    """Sends as many bytes as a line asks for, until the client ends."""

    def __init__(self, network: Packets) -> None:
        self._network = network
        self._listener = network.listen()
        self.port: int = self._listener.getsockname()[1]
        self._serving: list[tuple[socket.socket, threading.Thread]] = []
        self._thread = threading.Thread(target=self._accept)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._listener.close()
        for connection, thread in self._serving:
            with contextlib.suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # shut down
                return
            self._serving.append((connection, threading.Thread(target=self._serve, args=(connection,), daemon=True)))
            self._serving[-1][1].start()

    def _serve(self, connection: socket.socket) -> None:
        # The link may be down, and what a thread raises later falls upon some other test.
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for line in lines:
                connection.sendall(content(int(line)))

    def connect(self) -> socket.socket:
        client = self._network.connect(self.port)
        client.settimeout(PATIENCE)
        return client


def content(size: int) -> bytes:
    return (b"0123456789abcde\n" * (size // 16 + 1))[:size]


def ask(client: socket.socket, size: int) -> bytes:
    """Ask for so many bytes, and read them."""
    client.sendall(b"%d\n" % size)
    got = bytearray()
    while len(got) < size:
        more = client.recv(size - len(got))
        assert more, f"the stream ended after {len(got)} of {size} bytes"
        got += more
    return bytes(got)
