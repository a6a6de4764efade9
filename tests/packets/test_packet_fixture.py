"""netem.pytest_plugin: the packet network as a fixture, with the mark and the context manager of the others."""

from __future__ import annotations

import pytest
from packet_networks import Source, ask

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
