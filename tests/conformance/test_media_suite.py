"""medium_suite, client.media.tcp, client.media.tls, client.media.tls_relay, client.media.pipe,
client.media.descriptors: TCP, TLS, a pipe, and what another process has of them, against what every medium promises.

The simulated one and that of one process are in tests/simulated/test_simulated_media.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from medium_suite import BLOCK, MOST, TEXT, MediumSuite, Peer, play
from on_threads import Server

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
    """A server that behaves as the peer that was asked for last."""

    def __init__(self) -> None:
        self.peer = Peer.ECHOES
        self.server = Server(self.play, socket.create_server(("127.0.0.1", 0)), hangs_up=True)

    def connect(self, peer: Peer, *, fast_open: bool = False) -> Medium:
        self.peer = peer
        return TcpMedium(*self.server.address, fast_open=fast_open)

    def play(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        play(self.peer, connection.fileno(), connection.fileno())
        if self.peer is Peer.BREAKS_OFF:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture
def peers() -> Iterator[TcpPeers]:
    made = TcpPeers()
    yield made
    made.server.close()


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
        self.peer = peer
        if relayed:
            return PipeMedium(command(*self.server.address, self._trust), quotes=True, waits=True)
        return TlsMedium(*self.server.address, self._trust)

    def play(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        with self._context.wrap_socket(connection.dup(), server_side=True) as secured:  # `Server` shuts the first.
            if self.peer is Peer.TAKES_NOTHING:
                play(self.peer, secured.fileno(), secured.fileno())
            elif self.peer is Peer.SAYS_TEXT:
                secured.sendall(TEXT)
                secured.unwrap()
            else:
                while received := secured.recv(BLOCK):
                    secured.sendall(received)
                    if self.peer is Peer.BREAKS_OFF:
                        secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return


@pytest.fixture
def tls_peers(tmp_path: Path) -> Iterator[TlsPeers]:
    made = TlsPeers(tmp_path)
    yield made
    made.server.close()


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
