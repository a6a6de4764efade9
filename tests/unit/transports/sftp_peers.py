"""A server of SFTP that says what a test tells it to, at the other end of a pair of sockets."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from transports.sftp_session import Session

PATIENCE = 30.0
"""Seconds after which a test is stuck."""

Script = Callable[["Peer", int, int, bytes], None]
"""Told of each request: its type, its id and the rest; of the first packet: 1, 3 and nothing."""


def string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def packet(kind: int, *parts: bytes | int) -> bytes:
    body = b"".join(struct.pack(">I", part) if isinstance(part, int) else part for part in parts)
    return struct.pack(">IB", 1 + len(body), kind) + body


def version(number: int = 3, *extensions: bytes) -> bytes:
    return packet(2, number, *(string(name) + string(b"1") for name in extensions))


def status(number: int, code: int, message: bytes = b"") -> bytes:
    return packet(101, number, code, string(message), string(b""))


def handle(number: int, name: bytes = b"h") -> bytes:
    return packet(102, number, string(name))


def content(number: int, chunk: bytes) -> bytes:
    return packet(103, number, string(chunk))


def attributes(number: int, size: int, mode: int = 0o100644) -> bytes:
    return packet(105, number, 0x5, struct.pack(">Q", size), mode)


class _Channel:
    """The client's end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def recv(self, nbytes: int, /) -> bytes:
        return self._end.recv(nbytes)

    def sendall(self, s: bytes, /) -> None:
        self._end.sendall(s)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._end.close()


@dataclass
class Peer:
    """One connection; `script` runs on a thread of its own."""

    script: Script
    heard: list[tuple[int, int, bytes]] = field(default_factory=list)
    """All requests so far."""

    def __post_init__(self) -> None:
        ours, self._end = socket.socketpair()
        self._end.settimeout(PATIENCE)
        self.channel = _Channel(ours)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def session(self, **options: float | bool) -> Session:
        return Session(self.channel, "there", **options)  # type: ignore[arg-type]

    def say(self, *packets: bytes) -> None:
        self._end.sendall(b"".join(packets))

    def end(self) -> None:
        """Say no more."""
        self._end.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self.channel.close()
        self.ended()

    def ended(self) -> None:
        """Wait for the client's end."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        stream = self._end.makefile("rb")
        # A client that goes away with something unread resets the connection.
        with self._end, stream, contextlib.suppress(OSError):
            while len(head := stream.read(4)) == 4:
                body = stream.read(int.from_bytes(head))
                kind, number, rest = body[0], int.from_bytes(body[1:5]), body[5:]
                self.heard.append((kind, number, rest))
                self.script(self, kind, number, rest)
