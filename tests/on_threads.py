"""A server with a thread for each connection, whose part a test plays, and the client's first steps."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

PATIENCE = 30.0
"""Seconds after which a test counts as stuck; no test waits so long otherwise."""

Serve = Callable[[socket.socket], None]


class Server:
    """Runs `serve` for each connection of a listener until it is closed, and raises its errors then."""

    def __init__(self, serve: Serve, listener: socket.socket, *, hangs_up: bool) -> None:
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._serve, self._listener, self._hangs_up = serve, listener, hangs_up
        self._serving: list[tuple[socket.socket, threading.Thread]] = []
        self._errors: list[BaseException] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # It is shut down.
            while True:
                connection, _ = self._listener.accept()
                self._serving.append((connection, threading.Thread(target=self._run, args=(connection,))))
                self._serving[-1][1].start()

    def _run(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(PATIENCE)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._serve(connection)
            except BaseException as error:
                if not (self._hangs_up and isinstance(error, OSError)):
                    self._errors.append(error)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # Wakes `accept`.
        self._acceptor.join(PATIENCE)
        self._listener.close()
        for connection, thread in self._serving:
            if self._hangs_up:
                with contextlib.suppress(OSError):  # It has ended.
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()  # Also ends one that looks at what it has not read.
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server still waits"
        for error in self._errors:
            raise error


@contextlib.contextmanager
def serving(
    serve: Serve, host: str = "127.0.0.1", *, listener: socket.socket | None = None, hangs_up: bool = False
) -> Iterator[Server]:
    """Yield a server. `listener`: its socket, if there is one already. `hangs_up`: it closes the connections that are
    open at the end, and no error of a connection counts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = Server(serve, listener or socket.create_server((host, 0), family=family), hangs_up=hangs_up)
    try:
        yield server
    finally:
        server.close()


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def read(client: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        more = client.recv(size - len(got))
        assert more, f"the stream ended after {len(got)} of {size} bytes"
        got += more
    return bytes(got)


@contextlib.contextmanager
def nobody() -> Iterator[tuple[str, int]]:
    """Yield an address at which no server listens, and which no other process takes meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


def ask(client: socket.socket, text: bytes = b"ask") -> None:
    client.sendall(text)
    assert read(client, len(text)) == text
