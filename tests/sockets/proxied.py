"""The parts that tests of the proxy share: a server on threads, and the steps of a client."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from netem.proxy import Proxy

RTT = 0.04
LONG = 0.2
"""An RTT within which a busy machine surely sends the next bytes."""
PATIENCE = 30.0
"""Seconds after which a test counts as stuck; no test waits so long otherwise."""

Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def nobody() -> Iterator[tuple[str, int]]:
    """Yield an address at which no server listens, and which no other process takes meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


class Server:
    """Runs `serve` on a thread for each connection, and raises its errors at the end."""

    def __init__(self, serve: Serve, host: str) -> None:
        self._serve = serve
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if self._stopping:
                connection.close()
                return
            connection.settimeout(PATIENCE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._run, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _run(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._serve(connection)
            except BaseException as error:
                self._errors.append(error)

    def close(self) -> None:
        self._stopping = True
        socket.create_connection(self.address).close()
        self._acceptor.join(PATIENCE)
        self._socket.close()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server still waits"
        for error in self._errors:
            raise error


@contextlib.contextmanager
def serving(serve: Serve, host: str = "127.0.0.1") -> Iterator[Server]:
    server = Server(serve, host)
    try:
        yield server
    finally:
        server.close()


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def connect(proxy: Proxy) -> socket.socket:
    client = socket.create_connection((proxy.host, proxy.port), PATIENCE)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def read(client: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = client.recv(size - len(got))
        assert more, f"the stream ended after {len(got)} of {size} bytes"
        got += more
    return got


def ask(client: socket.socket, text: bytes = b"ask") -> None:
    client.sendall(text)
    assert read(client, len(text)) == text


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 16), b""))
