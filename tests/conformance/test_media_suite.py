"""client.media_conformance, client.media.tcp, client.media.pipe, client.media.descriptors: TCP, a pipe, and what
another process has of them, against what every medium promises.

The simulated one is in tests/simulated/test_simulated_medium.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from smartserver.client.held import Lendable
from smartserver.client.media.descriptors import DescriptorMedium
from smartserver.client.media.pipe import PipeMedium
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.media_conformance import MediumSuite, Peer, play
from smartserver.client.medium import Medium

pytestmark = pytest.mark.sockets

PROGRAM = """
from smartserver.client.media_conformance import Peer, play
play(Peer({peer!r}), 0, 1)
"""


class TcpPeers:
    """Peers on threads."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def connect(self, peer: Peer, *, fast_open: bool = False) -> Medium:
        medium = TcpMedium(*self._listener.getsockname(), fast_open=fast_open)
        connection, _ = self._listener.accept()
        self._connections.append(connection)
        self._threads.append(threading.Thread(target=self._play, args=(peer, connection)))
        self._threads[-1].start()
        return medium

    def _play(self, peer: Peer, connection: socket.socket) -> None:
        with connection:
            play(peer, connection.fileno(), connection.fileno())
            if peer is Peer.BREAKS_OFF:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):  # It has ended.
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
def peers() -> Iterator[TcpPeers]:
    made = TcpPeers()
    yield made
    made.close()


class TestTcp(MediumSuite):
    @pytest.fixture
    def connect(self, peers: TcpPeers) -> Callable[[Peer], Medium]:
        return peers.connect


class TestTcpThatMayWaitForItsFirstWrite(MediumSuite):
    @pytest.fixture
    def connect(self, peers: TcpPeers) -> Callable[[Peer], Medium]:
        return lambda peer: peers.connect(peer, fast_open=True)


class TestPipe(MediumSuite):
    @pytest.fixture
    def connect(self) -> Callable[[Peer], Medium]:
        return lambda peer: PipeMedium([sys.executable, "-c", PROGRAM.format(peer=peer.value)])


class TestDescriptorsOfASocket(MediumSuite):
    @pytest.fixture
    def connect(self, peers: TcpPeers) -> Callable[[Peer], Medium]:
        return lambda peer: lent(peers.connect(peer))


class TestDescriptorsOfAPipe(MediumSuite):
    @pytest.fixture
    def connect(self) -> Callable[[Peer], Medium]:
        return lambda peer: lent(PipeMedium([sys.executable, "-c", PROGRAM.format(peer=peer.value)], passes_on=True))


def lent(medium: Medium) -> Medium:
    """What another process has of it."""
    assert isinstance(medium, Lendable)
    other = DescriptorMedium([os.dup(each) for each in medium.lend()])
    medium.close()
    return other
