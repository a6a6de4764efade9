"""netem.network: each network of netem against what is promised of all. Counts are asserted, and no times."""

from __future__ import annotations

import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from needs import require
from on_threads import PATIENCE, echo, serving
from simulated_servers import Echo

from netem.budget import NothingCounted, TooManyRoundTrips, round_trips
from netem.effects import Blackhole, Cut, Effect, Loss
from netem.link import Link
from netem.network import Network
from netem.packets.network import CLIENT, Packets
from netem.proxy import Proxy
from netem.simulated import SimulatedNetwork
from netem.watched import Watched

RTT = 0.1
"""Much more than what these tests compute between two messages."""

Ask = Callable[[bytes], bytes]
"""Sends a line on one connection and waits for as much."""


class NetworkSuite(ABC):
    """The promises of a network."""

    refused: Effect
    """An effect that means nothing on it."""

    @pytest.fixture
    @abstractmethod
    def network(self) -> Iterator[Network]:
        """One that runs, at `RTT`."""

    @pytest.fixture
    @abstractmethod
    def connect(self, network: Network) -> Any:
        """Opens connections to a server that sends back what it gets."""

    def test_a_request_on_a_fresh_connection_is_two_and_on_a_held_one_one(
        self, network: Network, connect: Callable[[], Ask]
    ) -> None:
        ask = connect()
        assert ask(b"12345") == b"12345"
        counts = network.take()
        assert (counts.rounds, counts.handshake_rounds, counts.rounds_without_handshake) == (2, 1, 1)
        assert (counts.connections, counts.bytes_up, counts.bytes_down) == (1, 5, 5)
        assert counts.seconds >= 2 * RTT - 0.001
        for _ in range(2):
            ask(b"12345")
            counts = network.take()
            assert (counts.rounds, counts.handshake_rounds, counts.connections) == (1, 0, 0)

    def test_each_because_of_the_one_before(self, network: Network, connect: Callable[[], Ask]) -> None:
        asks = [connect(), connect()]
        for ask in asks:
            ask(b"x")  # so that no handshake is under way
        network.take()
        for ask in (*asks, *asks):
            ask(b"x")
        counts = network.take()
        assert (counts.rounds, counts.flights_up, counts.flights_down) == (4, 4, 4)

    def test_counts_begins_nothing_anew(self, network: Network, connect: Callable[[], Ask]) -> None:
        connect()(b"x")
        assert network.counts() == network.counts() == network.take()
        assert not network.take().used

    def test_a_limit_holds(self, network: Network, connect: Callable[[], Ask]) -> None:
        ask = connect()
        ask(b"x")
        with round_trips(network, at_most=1) as taken:
            ask(b"x")
        assert taken.counts.rounds == 1
        with pytest.raises(TooManyRoundTrips), round_trips(network, at_most=1):
            assert ask(b"x") + ask(b"y") == b"xy"
        with pytest.raises(NothingCounted), round_trips(network, at_most=1):
            pass

    def test_the_link_may_change(self, network: Network, connect: Callable[[], Ask]) -> None:
        ask = connect()
        ask(b"x")
        assert network.link.rtt == RTT
        network.change(Link(2 * RTT))
        assert network.link == Link(2 * RTT)
        network.take()
        ask(b"x")
        counts = network.take()
        assert counts.rounds == 1
        assert counts.seconds >= 2 * RTT - 0.001

    def test_a_link_that_means_nothing_is_refused(self, network: Network, connect: Callable[[], Ask]) -> None:
        before = network.link
        with pytest.raises(ValueError, match=f"{type(self.refused).__name__.lower()} is of"):
            network.change(Link(RTT, up=[self.refused]))
        assert network.link is before
        assert connect()(b"x") == b"x"

    def test_closing_twice_is_nothing(self, network: Network) -> None:
        network.close()
        network.close()


class ExactHandshakes:
    """The networks that let the client wait for a handshake, as a real link does."""

    def test_connections_opened_one_after_the_other_are_so_many_round_trips(
        self, network: Network, connect: Callable[[], Ask]
    ) -> None:
        for _ in range(5):
            connect()
        counts = network.take()
        assert (counts.rounds, counts.handshake_rounds, counts.connections) == (5, 5, 5)


class TestSimulated(NetworkSuite, ExactHandshakes):
    refused = Loss(0.5)

    @pytest.fixture
    def network(self) -> Iterator[Network]:
        with SimulatedNetwork(Link(RTT)) as network:
            yield network

    @pytest.fixture
    def connect(self, network: SimulatedNetwork) -> Callable[[], Ask]:
        def connect() -> Ask:
            stream = network.connect(Echo)

            def ask(line: bytes) -> bytes:
                stream.send(line)
                return stream.read(len(line))

            return ask

        return connect


@contextlib.contextmanager
def asking(dial: Callable[[], socket.socket]) -> Iterator[Callable[[], Ask]]:
    with contextlib.ExitStack() as opened:

        def connect() -> Ask:
            sock = opened.enter_context(dial())
            sock.settimeout(PATIENCE)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def ask(line: bytes) -> bytes:
                sock.sendall(line)
                return sock.recv(len(line), socket.MSG_WAITALL)

            return ask

        yield connect


@pytest.fixture
def port() -> Iterator[int]:
    with serving(echo) as server:
        yield server.address[1]


@pytest.mark.sockets
class TestProxy(NetworkSuite):
    refused = Loss(0.5)

    @pytest.fixture
    def network(self, port: int) -> Iterator[Network]:
        with Proxy(RTT, ("127.0.0.1", port)) as network:
            yield network

    @pytest.fixture
    def connect(self, network: Proxy) -> Iterator[Callable[[], Ask]]:
        with asking(lambda: socket.create_connection((network.host, network.port))) as connect:
            yield connect


@pytest.mark.sockets
class TestWatched(NetworkSuite, ExactHandshakes):
    refused = Loss(0.5)

    @pytest.fixture
    def network(self, port: int) -> Iterator[Network]:
        with Watched(RTT) as network:
            yield network

    @pytest.fixture
    def connect(self, network: Watched, port: int) -> Iterator[Callable[[], Ask]]:
        with asking(lambda: socket.create_connection(("127.0.0.1", port))) as connect:
            yield connect


@pytest.mark.packets
class TestPackets(NetworkSuite, ExactHandshakes):
    refused = Cut(5)

    @pytest.fixture
    def network(self) -> Iterator[Network]:
        require("network namespaces")
        with Packets(Link(RTT)) as network:
            yield network

    @pytest.fixture
    def connect(self, network: Packets) -> Iterator[Callable[[], Ask]]:
        with (
            serving(echo, listener=network.listen(), hangs_up=True) as server,
            asking(lambda: network.connect(server.address[1])) as connect,
        ):
            yield connect

    def test_a_handshake_nobody_answers_is_no_round_trip(self, network: Packets) -> None:
        network.change(Link(RTT, up=[Blackhole()]))
        with network.make_socket(CLIENT) as sock, network.listen() as listener:
            sock.settimeout(2 * RTT)
            with pytest.raises(TimeoutError):
                sock.connect(listener.getsockname())
        counts = network.take()
        assert (counts.connections, counts.rounds, counts.seconds) == (1, 0, 0.0)

    def test_a_refusal_is_one(self, network: Packets) -> None:
        with pytest.raises(ConnectionRefusedError):
            network.connect(1)
        counts = network.take()
        assert (counts.connections, counts.rounds, counts.handshake_rounds) == (1, 1, 1)
        assert counts.seconds >= RTT - 0.001
