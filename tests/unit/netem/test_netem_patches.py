from __future__ import annotations

import asyncio
import asyncio.selector_events
import io
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.abstract import FileDescriptor

from netem.patches import Patches

LOOP = asyncio.selector_events
PATCHED = (socket.socket, ssl.SSLSocket, LOOP.BaseSelectorEventLoop, LOOP._SelectorSocketTransport, FileDescriptor)  # type: ignore[attr-defined]


class Notes:
    """A witness that lets everything be done, and notes it."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def connect(self, sock: socket.socket, address: Any, connect: Callable[[Any], Any]) -> Any:
        self.said.append(("connect", address))
        return connect(address)

    async def connected(self, sock: socket.socket) -> None:
        self.said.append(("connected", sock.getpeername()))

    def send(self, sock: socket.socket, send: Callable[[], int]) -> int:
        size = send()
        self.said.append(("send", size))
        return size

    def write(self, sock: socket.socket, size: int) -> None:
        self.said.append(("write", size))


@pytest.fixture
def notes() -> Iterator[Notes]:
    notes = Notes()
    patches = Patches(notes)
    patches.apply()
    yield notes
    patches.undo()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_file_is_sent_once_however_it_is_done(notes: Notes, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    with tempfile.TemporaryFile() as file:
        file.write(b"123456")
        file.seek(0)
        assert one.sendfile(file) == 6
    assert one.sendfile(io.BytesIO(b"1234567")) == 7
    assert notes.said == [("send", 6), ("send", 7), ("send", 7)]  # the last calls `send`
    assert other.recv(99) == b"1234561234567"


def test_what_is_sent_may_be_named(notes: Notes, pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair

    async def talk() -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=one)
        transport.write(data=b"123")
        transport.writelines(list_of_data=[b"12", b"34"])
        transport.close()

    asyncio.run(talk())
    assert [each for each in notes.said if each[0] == "write"] == [("write", 3), ("write", 4)]
    assert other.recv(99) == b"1231234"


def test_what_is_sent_over_tls_may_have_flags_by_name(notes: Notes) -> None:
    """The flags have the names that `SSLSocket.sendall` gives them; on a socket that is not connected it sends as any
    other does."""
    one, other = socket.socketpair()
    with one, other:
        wrapped = ssl.SSLSocket.__new__(ssl.SSLSocket)
        socket.socket.__init__(wrapped, fileno=one.detach())
        wrapped._sslobj = None  # type: ignore[attr-defined]
        with wrapped:
            wrapped.sendall(b"123", flags=0)
            wrapped.sendall(data=b"1234")
        assert other.recv(99) == b"1231234"
    assert [size for what, size in notes.said if what == "send"][-1] == 4


def test_wrong_arguments_are_refused_by_who_always_did(notes: Notes, pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(TypeError):
        pair[0].sendall("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pair[0].sendall()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        pair[0].connect()  # type: ignore[call-arg]
    assert notes.said == []


def test_undone_everything_is_as_it_was() -> None:
    before = [dict(vars(kind)) for kind in PATCHED]
    patches = Patches(Notes())
    patches.apply()
    assert all(dict(vars(kind)) != was for kind, was in zip(PATCHED, before, strict=True))
    patches.undo()
    assert [dict(vars(kind)) for kind in PATCHED] == before
    patches.undo()
    assert [dict(vars(kind)) for kind in PATCHED] == before
