"""netem.pytest_plugin: the packet network as a fixture, with the mark and the context manager of the others."""

from __future__ import annotations

import pytest
from packet_servers import Source, ask

from netem.budget import round_trips
from netem.effects import Loss
from netem.link import Link
from netem.packets.network import Packets

pytestmark = pytest.mark.packets
pytest_plugins = ["pytester"]


@pytest.fixture
def netem_rtt() -> float:
    return 0.01


@pytest.mark.max_round_trips(2)
def test_a_cold_request(packet_network: Packets) -> None:
    assert packet_network.link == Link(0.01)
    with Source(packet_network) as source, source.connect() as client:
        ask(client, 100)


@pytest.mark.max_round_trips(1, handshake=False)
def test_the_handshake_left_out_and_a_part_of_a_test(packet_network: Packets) -> None:
    with Source(packet_network) as source, source.connect() as client:
        ask(client, 100)
        ask(client, 100)
        packet_network.take()
        with round_trips(packet_network, at_most=1) as taken:
            packet_network.change(Link(0.02))
            ask(client, 5000)
        assert taken.counts.bytes_down == 5000
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


def test_beyond_the_limit_the_messages_are_shown(packet_network: Packets, pytester: pytest.Pytester) -> None:
    """`packet_network`: skips where there can be none."""
    result = run(
        pytester,
        """
@pytest.mark.max_round_trips(1)
def test_cold(packet_network):
    with packet_network.listen() as listener, packet_network.connect(listener.getsockname()[1]) as client:
        accepted, _ = listener.accept()
        with accepted:
            for each in range(2):
                client.sendall(b"ping")
                accepted.sendall(accepted.recv(100))
                assert client.recv(100) == b"ping"
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "3 round trips, at most 1 allowed",
            "  connection 1  -> server  depth 3 *",
            "  connection 1  client <-  depth 6 *",
        ]
    )


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
