"""Servers that are not ours, each on a port of its own: what somebody who mistypes a port meets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from on_threads import Serve, serving


def http(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def ssh(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
    connection.recv(65536)


def closes(connection: socket.socket) -> None:
    """Says nothing and hears nothing."""


def newest(connection: socket.socket) -> None:
    """One that speaks several, and none of ours."""
    connection.sendall(b"hpss! 3 4\n")
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65536):
        pass


def silent(connection: socket.socket) -> None:
    """Takes everything and never says a word."""
    while connection.recv(65536):
        pass


def deaf(connection: socket.socket) -> None:
    """Takes nothing and never says a word, until the client gives up."""
    poll = threading.Event()
    while not poll.wait(0.05):
        with contextlib.suppress(BlockingIOError):
            peeked = connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            if not peeked:
                return
        try:
            connection.getpeername()
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return
        except OSError:
            return


@contextlib.contextmanager
def stranger(behave: Serve) -> Iterator[int]:
    """A port where each connection is treated like that."""
    with serving(behave, hangs_up=True) as server:
        yield server.address[1]
