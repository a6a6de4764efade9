"""What tests of `netem.watched` stand on: how a program talks to `answering`, and what is seen of it."""

from __future__ import annotations

import socket

from netem.callsites import CallSite
from netem.counter import Counts

RTT = 0.02
PATIENCE = 30.0


def read_line(sock: socket.socket) -> bytes:
    got = b""
    while not got.endswith(b"\n"):
        more = sock.recv(99)
        assert more
        got += more
    return got


def ask(sock: socket.socket, line: bytes) -> None:
    sock.sendall(line)
    assert read_line(sock) == b"re: " + line


def by_socket_once(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        ask(sock, b"x\n")


def asked(counts: Counts) -> list[tuple[CallSite, bytes]]:
    """Of each message of the program, the innermost line and the bytes."""
    return [(message.sites[0], message.content) for message in counts.messages if message.up and message.size]
