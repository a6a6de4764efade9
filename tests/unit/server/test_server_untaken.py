"""server.outbox: every byte a peer takes is seen, of a socket and of a pipe."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from smartserver.server.outbox import in_kernel, unacknowledged


@dataclass
class Writer:
    """A Twisted descriptor."""

    descriptor: int
    dataBuffer: bytes = b""
    offset: int = 0
    _tempDataLen: int = 0

    def fileno(self) -> int:
        return self.descriptor


@pytest.fixture(params=["pipe", "tcp"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, Callable[[int], object]]]:
    """An end to write to, and a function that reads so many bytes of it."""
    if request.param == "pipe":
        out, into = os.pipe()
        yield into, lambda size: os.read(out, size)
        os.close(out)
        os.close(into)
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with socket.create_connection(listening.getsockname()) as writer, listening.accept()[0] as reader:
            yield writer.fileno(), lambda size: reader.recv(size, socket.MSG_WAITALL)


def test_what_a_slow_reader_takes_is_seen(ends: tuple[int, Callable[[int], object]]) -> None:
    """Also what is far less than has to be taken before more can be written."""
    descriptor, read = ends
    os.set_blocking(descriptor, False)
    try:
        while True:
            os.write(descriptor, bytes(1 << 16))
    except BlockingIOError:
        pass
    before = unacknowledged(Writer(descriptor))
    assert before > 1 << 14
    taken = 0
    while unacknowledged(Writer(descriptor)) >= before:
        read(1000)
        taken += 1000
        assert taken < before


def test_what_the_kernel_has_not_taken_counts(ends: tuple[int, Callable[[int], object]]) -> None:
    descriptor, _ = ends
    assert unacknowledged(Writer(descriptor)) == 0
    assert unacknowledged(Writer(descriptor, b"123456789", 4, 3)) == 8


def test_what_can_be_read_of_a_socket_is_not_meant() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"12345")
        assert in_kernel(ours.fileno()) == 0


def test_of_what_is_neither_nothing_is_known(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert in_kernel(file.fileno()) == 0
    assert in_kernel(-1) == 0
