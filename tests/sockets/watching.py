"""The parts that tests of `netem.watched` share: a server, programs that talk to it, and readings of the counts."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from on_threads import serving

from netem.callsites import CallSite
from netem.counter import Counts

RTT = 0.02
PATIENCE = 30.0


def answer(connection: socket.socket) -> None:
    """Answer each line with `re: ` and the line."""
    with contextlib.suppress(ConnectionError), connection.makefile("rb") as lines:
        for line in lines:
            connection.sendall(b"re: " + line)


@contextlib.contextmanager
def answering(host: str = "127.0.0.1") -> Iterator[int]:
    """Serve on a port of `host`; its number."""
    with serving(answer, host) as server:
        yield server.address[1]


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
