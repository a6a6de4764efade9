"""netem.patches, netem.sendlog, netem.callsites: what is sent, and which line of a program sent it."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import io
import os
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.abstract import FileDescriptor

from netem.callsites import CallSite, CallSites, of_a_library
from netem.patches import Patches
from netem.sendlog import SendLog

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


A, B, C = (((CallSite("program.py", line, "f"),)) for line in (1, 2, 3))


def send(log: SendLog, size: int, sites: CallSites) -> None:
    """A socket sends, and takes `size` bytes."""
    assert log.send(sites, lambda: size) == size


def test_what_comes_in_one_piece_belongs_to_who_began_it() -> None:
    log = SendLog()
    send(log, 10, A)
    send(log, 5, B)
    send(log, 5, C)
    assert [log.received(12), log.received(8)] == [A, B]


def test_a_send_that_took_nothing_is_forgotten() -> None:
    log = SendLog()
    send(log, 10, A)
    send(log, 0, B)
    send(log, 5, C)
    assert [log.received(10), log.received(5)] == [A, C]


def test_a_send_inside_a_send_counts_once() -> None:
    """`sendall` calls `send`, and B is the line inside; what it did not send itself the outer one did."""
    log = SendLog()

    def sendall() -> int:
        send(log, 4, B)
        send(log, 3, B)
        return 9

    assert log.send(A, sendall) == 9
    assert log.sent == 9
    send(log, 5, C)
    assert [log.received(9), log.received(5)] == [B, C]


def test_what_a_failed_send_had_sent_inside_is_counted() -> None:
    log = SendLog()

    def sendall() -> int:
        send(log, 4, B)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        log.send(A, sendall)
    send(log, 5, C)
    assert log.sent == 9
    assert [log.received(4), log.received(5)] == [B, C]


def test_two_threads_that_send_at_once_are_counted_both() -> None:
    """B begins when A has begun, and ends first."""
    log = SendLog()
    begun, ended = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert ended.wait(30)
        return 5

    other = threading.Thread(target=lambda: log.send(A, slow))
    other.start()
    assert begun.wait(30)
    send(log, 7, B)
    ended.set()
    other.join()
    assert log.sent == 12
    assert [log.received(7), log.received(5)] == [B, A]


def test_a_socket_may_be_used_before_and_after_a_transport() -> None:
    log = SendLog()
    send(log, 3, A)
    log.writing(4, B)
    send(log, 4, C)
    send(log, 2, C)
    assert [log.received(3), log.received(4), log.received(2)] == [A, B, C]
    assert SendLog().received(5) == ()


HERE = os.path.abspath(__file__)


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (os.__file__, True),
        (pytest.__file__, True),
        (os.path.join(os.path.dirname(sys.executable), "pytest"), True),
        ("<frozen importlib._bootstrap>", True),
        ("/usr/lib/python3/dist-packages/x.py", True),
        (HERE, False),
        ("<string>", False),
        ("<stdin>", False),
    ],
)
def test_what_is_a_library(path: str, library: bool) -> None:
    assert of_a_library(path) is library
