"""medium_suite, client.media.tcp, client.media.tls, client.media.tls_relay, client.media.pipe,
client.media.descriptors: TCP, TLS, a pipe, and what another process has of them, against what every medium promises.

The simulated one is in tests/simulated/test_simulated_medium.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from medium_suite import BLOCK, MOST, TEXT, MediumSuite, Peer, play

from smartserver.client.held import Lendable
from smartserver.client.media.descriptors import DescriptorMedium
from smartserver.client.media.pipe import PipeMedium
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.media.tls import TlsMedium
from smartserver.client.media.tls_relay import command
from smartserver.client.medium import Medium
from smartserver.client.trust import Trust
from smartserver.wire.tls import ALPN

pytestmark = pytest.mark.sockets

PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from medium_suite import Peer, play
play(Peer(sys.argv[1]), 0, 1)
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
        return lambda peer: PipeMedium([sys.executable, "-c", PROGRAM, peer.value])


class TestDescriptorsOfASocket(MediumSuite):
    @pytest.fixture
    def connect(self, peers: TcpPeers) -> Callable[[Peer], Medium]:
        return lambda peer: lent(peers.connect(peer))


class TestDescriptorsOfAPipe(MediumSuite):
    @pytest.fixture
    def connect(self) -> Callable[[Peer], Medium]:
        return lambda peer: lent(PipeMedium([sys.executable, "-c", PROGRAM, peer.value], passes_on=True))


class TlsPeers(TcpPeers):
    """The same with TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        authority = Authority(folder)
        self._trust = Trust(ca=str(authority.file))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*authority.sign("127.0.0.1"))
        self._context.set_alpn_protocols([ALPN])

    def connect_tls(self, peer: Peer, *, relayed: bool) -> Medium:
        accepting = threading.Thread(target=self._accept, args=(peer,))
        self._threads.append(accepting)
        accepting.start()
        host, port = self._listener.getsockname()
        if relayed:
            return PipeMedium(command(host, port, self._trust), quotes=True, waits=True)
        return TlsMedium(host, port, self._trust)

    def _accept(self, peer: Peer) -> None:
        connection, _ = self._listener.accept()
        # What is sent after the tickets of the handshake does not wait until those are acknowledged.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._context.wrap_socket(connection, server_side=True) as secured:
            self._connections.append(secured)
            if peer is Peer.TAKES_NOTHING:
                waiting = select.poll()
                waiting.register(secured, getattr(select, "POLLRDHUP", 0))
                waiting.poll()
                return
            # The client goes without a word of TLS, or the test is over.
            with contextlib.suppress(ssl.SSLError, ConnectionError, ValueError):
                if peer is Peer.SAYS_TEXT:
                    secured.sendall(TEXT)
                    secured.unwrap()
                    return
                while received := secured.recv(BLOCK):
                    secured.sendall(received)
                    if peer is Peer.BREAKS_OFF:
                        secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return


@pytest.fixture
def tls_peers(tmp_path: Path) -> Iterator[TlsPeers]:
    made = TlsPeers(tmp_path)
    yield made
    made.close()


class TestTls(MediumSuite):
    @pytest.fixture
    def connect(self, tls_peers: TlsPeers) -> Callable[[Peer], Medium]:
        return lambda peer: tls_peers.connect_tls(peer, relayed=False)


class TestRelayOfTls(MediumSuite):
    @pytest.fixture
    def connect(self, tls_peers: TlsPeers) -> Callable[[Peer], Medium]:
        return lambda peer: tls_peers.connect_tls(peer, relayed=True)

    def test_only_what_fits_is_taken(self, connect: Callable[[Peer], Medium]) -> None:
        """The relay takes more from the pipe until its connection is full."""
        with contextlib.closing(connect(Peer.TAKES_NOTHING)) as medium:
            block, taken = memoryview(bytes(BLOCK)), 0
            while medium.poll(read=False, write=True, timeout=1.0)[1]:
                taken += medium.write_some(block)
                assert taken < MOST, "a peer that reads nothing took all of it"


def lent(medium: Medium) -> Medium:
    """The part that another process has of it."""
    assert isinstance(medium, Lendable)
    other = DescriptorMedium([os.dup(each) for each in medium.lend()])
    medium.close()
    return other
