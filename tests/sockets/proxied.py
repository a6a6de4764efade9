"""The parts that tests of the proxy share: servers and the steps of a client."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from on_threads import PATIENCE, read

from netem.proxy import Proxy

RTT = 0.04
LONG = 0.2
"""An RTT within which a busy machine surely sends the next bytes."""


@contextlib.contextmanager
def nobody() -> Iterator[tuple[str, int]]:
    """Yield an address at which no server listens, and which no other process takes meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


def connect(proxy: Proxy) -> socket.socket:
    client = socket.create_connection((proxy.host, proxy.port), PATIENCE)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def ask(client: socket.socket, text: bytes = b"ask") -> None:
    client.sendall(text)
    assert read(client, len(text)) == text


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 16), b""))
