"""The parts that tests of `netem.watched` share: programs that talk to `answering`, and readings of the counts."""

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
    """Return the innermost line and the bytes of each message from the program."""
    return [(message.sites[0], message.content) for message in counts.messages if message.up and message.size]
