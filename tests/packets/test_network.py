"""netem.packets.network: TCP between two, its rounds, how late the emulator was, and what a link does to packets;
netem.pytest_plugin: the network as a fixture.

Times are read as whole round trips, of an RTT that a busy machine does not reach by being late."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from on_threads import PATIENCE
from packet_networks import SOON, Source, Start, ask, children, content
from processes import state

from netem.counter import Counts
from netem.effects import Blackhole, Corrupt, Duplicate, Effect, Jitter, Loss, Rate, Stall
from netem.link import Link
from netem.packets.network import CLIENT, SERVER, Packets
from netem.timekeeping import PAUSE

pytestmark = pytest.mark.packets
pytest_plugins = ["pytester"]

RTT = 0.2
TRIES = 5
"""Tries of a measurement by the clock: other work of the machine makes it longer, and never shorter."""


def test_slow_start_of_a_fresh_connection(start: Start) -> None:
    """14,480 bytes are the ten segments of an initial window; from there it doubles with each round trip."""
    network = start(Link(RTT))
    with Source(network) as source:
        for size, rounds in ((14_480, 1), (14_600, 2), (100_000, 3)):
            for _ in range(TRIES):
                network.take()
                begun = time.monotonic()
                with source.connect() as client:
                    connected = time.monotonic()
                    ask(client, size)
                    answered = time.monotonic()
                counts = network.take()
                assert connected - begun >= RTT
                assert answered - connected >= rounds * RTT
                found = [round((connected - begun) / RTT), round((answered - connected) / RTT)]
                if found == [1, rounds]:
                    break
            assert found == [1, rounds], f"{size} bytes; the emulator was late by {network.lateness()}"
            assert (counts.rounds, counts.handshake_rounds, counts.connections) == (2, 1, 1)  # of the programs
            assert (counts.bytes_up, counts.bytes_down, counts.repeated) == (len(str(size)) + 1, size, 0)
            assert counts.packets_down >= size / 1448


STOPPED = 0.15
"""Seconds for which an emulator is stopped."""


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    while state(pid) != "T":
        pass


def test_an_emulator_that_was_stopped_as_a_packet_came_knows_how_late_it_was(start: Start) -> None:
    network = start(Link(SOON))
    assert network._process is not None
    (emulator,) = children(network) - {network._process.pid}
    with Source(network) as source, source.connect() as client:
        ask(client, 10)
        network.take()
        stop(emulator)
        client.sendall(b"10\n")
        time.sleep(STOPPED)
        os.kill(emulator, signal.SIGCONT)
        assert client.recv(100) == content(10)
        assert network.lateness() >= STOPPED - PAUSE


UDP = socket.SOCK_DGRAM
UDP_SEGMENT = 103
"""An option of Linux (linux/udp.h), which Python has no name for."""


@dataclass
class Received:
    """The segments that the kernel of a client says it received."""

    packets: int
    out_of_order: int

    @classmethod
    def by(cls, client: socket.socket) -> Received:
        """`tcpi_segs_in` and `tcpi_rcv_ooopack` of linux/tcp.h."""
        told = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return cls(*(struct.unpack_from("=I", told, at)[0] for at in (140, 224)))

    def since(self, before: Received) -> Received:
        return Received(self.packets - before.packets, self.out_of_order - before.out_of_order)


Trace = Callable[[Counts, Received], bool]
"""A test for the trace of an effect, which is not there if the effect does nothing."""


def lost(counts: Counts, _: Received) -> bool:
    return counts.dropped > 0


def repeated(counts: Counts, _: Received) -> bool:
    return counts.repeated > 0


def twice(counts: Counts, received: Received) -> bool:
    return received.packets > counts.packets_down


def out_of_order(_: Counts, received: Received) -> bool:
    return received.out_of_order > 0


def name(it: object) -> str:
    return getattr(it, "__name__", repr(it))


def test_a_rate_is_kept(start: Start) -> None:
    network = start(Link(SOON, rate=100_000))
    with Source(network) as source, source.connect() as client:
        begun = time.monotonic()
        ask(client, 50_000)
        assert time.monotonic() - begun >= 0.5


@pytest.mark.parametrize("effect", [Blackhole(), Stall(0), Loss(1)], ids=repr)
def test_a_link_goes_down_and_comes_back(start: Start, effect: Effect) -> None:
    network = start(Link(SOON, up=[Loss(0)]))
    with Source(network) as source, source.connect() as client:
        ask(client, 10)
        network.change(Link(SOON, up=[effect]))
        client.sendall(b"12\n")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        client.settimeout(PATIENCE)
        network.change(Link(SOON))
        assert client.recv(100) == content(12)


@pytest.mark.parametrize(
    ("effect", "trace"),
    [
        (Loss(0.1, seed=1), lost),
        (Duplicate(0.3), twice),
        (Corrupt(0.1), repeated),
        (Jitter(0.004, ordered=False), out_of_order),
        (Rate(1_000_000, 20_000), lost),
    ],
    ids=name,
)
def test_a_link_that_begins_to_harm_packets(start: Start, effect: Effect, trace: Trace) -> None:
    """In the middle of a connection that sent trains before, and does so again afterwards."""
    network = start(Link(SOON))
    with Source(network) as source, source.connect() as client:
        assert ask(client, 200_000) == content(200_000)
        assert network.take().dropped == 0
        before = Received.by(client)
        network.change(Link(SOON, down=[effect]))
        assert ask(client, 200_000) == content(200_000)
        received, counts = Received.by(client).since(before), network.take()
        assert (counts.bytes_down, counts.packets_down >= 200_000 / 1448) == (200_000, True)
        assert trace(counts, received)
        network.change(Link(SOON))
        assert ask(client, 200_000) == content(200_000)
        assert network.take().bytes_down == 200_000


@pytest.mark.parametrize("link", [Link(SOON), Link(SOON, up=[Loss(0)])], ids=["trains", "packets"])
def test_datagrams_that_were_sent_as_one_train(start: Start, link: Link) -> None:
    network = start(link)
    with network.make_socket(SERVER, kind=UDP) as server, network.make_socket(CLIENT, kind=UDP) as client:
        server.settimeout(PATIENCE)
        server.bind((network.server_address, 0))
        client.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        client.sendto(content(2500), server.getsockname())
        assert [server.recv(5000) for _ in range(3)] == [content(2500)[at : at + 1000] for at in (0, 1000, 2000)]
        counts = network.take()
        assert (counts.packets_up, counts.not_tcp, counts.rounds) == (3, 3, 0)
        assert network.take().not_tcp == 0


@pytest.fixture
def netem_rtt() -> float:
    return 0.01


@pytest.mark.max_round_trips(2)
def test_a_cold_request(packet_network: Packets) -> None:
    assert packet_network.link == Link(0.01)
    with Source(packet_network) as source, source.connect() as client:
        ask(client, 100)


class TestAnotherLink:
    @pytest.fixture
    def netem_packet_link(self) -> Link:
        return Link(0.004, down=[Loss(0.2, seed=1)])

    def test_it_loses_packets(self, packet_network: Packets) -> None:
        with Source(packet_network) as source, source.connect() as client:
            ask(client, 60_000)
        assert packet_network.take().dropped > 0


def run(pytester: pytest.Pytester, body: str) -> pytest.RunResult:
    pytester.makepyfile(f"import os, signal, pytest\n{body}")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider")


def test_a_network_that_failed_under_a_test_is_an_error(packet_network: Packets, pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_it(packet_network):
    os.kill(packet_network._process.pid, signal.SIGKILL)
    packet_network._process.wait()
""",
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*PacketsError: the * of the packet network failed*"])
