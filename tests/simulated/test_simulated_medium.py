"""medium_suite: the simulated medium keeps the promises of real ones, so what is shown on it holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from medium_suite import TEXT, MediumSuite, Peer
from simulated_joint import StreamMedium

from netem.clock import Clock
from netem.link import Link
from netem.simulated import ServerTransport, SimulatedNetwork
from smartserver.client.medium import Medium

RTT = 1.0


class _Player:
    """A peer, as the network calls it."""

    def __init__(self, peer: Peer, transport: ServerTransport, clock: Clock) -> None:
        self._peer = peer
        self._clock = clock
        self._transport = transport
        if peer is Peer.SAYS_TEXT:
            transport.write(TEXT)
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self._peer in (Peer.ECHOES, Peer.BREAKS_OFF):
            self._transport.write(data)
        if self._peer is Peer.BREAKS_OFF:
            self._clock.call_later(RTT, self._transport.abort)  # At once that would be lost too.

    def eof_received(self) -> None:
        pass

    def connection_lost(self, error: ConnectionError | None) -> None:
        pass


class TestSimulated(MediumSuite):
    @pytest.fixture
    def connect(self) -> Callable[[Peer], Medium]:
        def make(peer: Peer) -> Medium:
            # Who reads nothing looks from here like a link on which nothing moves.
            network = SimulatedNetwork(Link(RTT, rate=1.0) if peer is Peer.TAKES_NOTHING else Link(RTT))
            return StreamMedium(network.connect(lambda transport: _Player(peer, transport, network.clock)))

        return make
