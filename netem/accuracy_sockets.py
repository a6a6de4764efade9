"""Both ends of the sockets with which a network's accuracy is measured; each can run in a process of its own.

The first byte of a connection says what it is for: `e`, each byte comes back; `b`, bytes are swallowed, and one comes
back when the stream ends. The server runs as `python -m netem.accuracy_sockets FD`, on a listening socket it inherits,
until its stdin ends: that is, no longer than who started it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO

CONNECTIONS = 16
"""At once, of exchanges: enough for one end to work while the other does."""

CHUNK = 1 << 20
"""Bytes written and read at once in bulk."""

PATIENCE = 60.0
"""Seconds without a byte after which something is broken."""

Connect = Callable[[], socket.socket]


def dial(host: str, port: int) -> Connect:
    """Opens connections to there."""

    def connect() -> socket.socket:
        made = socket.create_connection((host, port), PATIENCE)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    return connect


def echo(connect: Connect, count: int) -> list[float]:
    """Seconds of each of so many exchanges, one after the other; the connection is opened before."""
    taken = []
    with connect() as link:
        link.sendall(b"e.")
        _await_answer(link)
        for _ in range(count):
            begun = time.monotonic()
            link.sendall(b".")
            _await_answer(link)
            taken.append(time.monotonic() - begun)
    return taken


def bulk(connect: Connect, size: int) -> float:
    """Seconds until so many bytes are there, and it is known."""
    chunk = memoryview(bytes(CHUNK))
    with connect() as link:
        link.sendall(b"b")
        begun = time.monotonic()
        while size:
            size -= link.send(chunk[: min(size, CHUNK)])
        link.shutdown(socket.SHUT_WR)
        _await_answer(link)
        return time.monotonic() - begun


def exchanges(connect: Connect, count: int) -> float:
    """Seconds for so many exchanges, on several connections at once."""
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        links = [opened.enter_context(connect()) for _ in range(min(CONNECTIONS, count))]
        for link in links:
            link.sendall(b"e")
            selector.register(link, selectors.EVENT_READ)
        begun = time.monotonic()
        for link in links:
            link.sendall(b".")
        left, asked = count, count - len(links)
        while left:
            ready = selector.select(PATIENCE)
            if not ready:
                raise TimeoutError(f"no answer for {PATIENCE:g} s, {left} to come")
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                _await_answer(key.fileobj)
                left -= 1
                if asked:
                    asked -= 1
                    key.fileobj.sendall(b".")
        return time.monotonic() - begun


def _await_answer(link: socket.socket) -> None:
    """Read one byte; an end instead is no answer, and what it took measures nothing."""
    if not link.recv(1):
        raise ConnectionError("the server ended the connection instead of answering")


def serve(listener: socket.socket, until: IO[bytes]) -> None:
    """Serve connections until `until` ends."""
    buffer = bytearray(CHUNK)
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as accepted:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(until, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is until:
                    return
                if key.fileobj is listener:
                    link = accepted.enter_context(listener.accept()[0])
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(link, selectors.EVENT_READ, [])
                    continue
                assert isinstance(key.fileobj, socket.socket)
                if not _answer(key.fileobj, key.data, buffer):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def _answer(link: socket.socket, purpose: list[bytes], buffer: bytearray) -> bool:
    """Read once and answer; whether there may be more. `purpose` holds the first byte, once it has come."""
    with contextlib.suppress(ConnectionError):
        size = link.recv_into(buffer)
        view = memoryview(buffer)[:size]
        if size and not purpose:
            purpose.append(bytes(view[:1]))
            view = view[1:]
        if purpose == [b"e"] and view:
            link.sendall(view)
        if purpose == [b"b"] and not size:
            link.sendall(b".")
        return bool(size)
    return False


@contextlib.contextmanager
def server(listener: socket.socket | None = None) -> Iterator[tuple[str, int]]:
    """A server in a process of its own, on a listening socket or a free port of this machine: its address."""
    with listener or socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        command = [sys.executable, "-m", "netem.accuracy_sockets", str(listening.fileno())]
        # A group of its own: Ctrl-C is for us.
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], process_group=0
        ) as serving:
            address: tuple[str, int] = listening.getsockname()
            try:
                yield address
            finally:
                # It ends with its stdin. `with` waits a quarter of a second for it after a Ctrl-C, and then leaves it.
                assert serving.stdin
                serving.stdin.close()
                serving.wait()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        serve(inherited, sys.stdin.buffer)
