"""netem.accuracy_networks: packets as one of the networks whose accuracy is measured; times only from below."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

import pytest

from netem.accuracy import measure
from netem.accuracy_networks import OneByOne, OverPackets
from netem.accuracy_sockets import server
from netem.cli import accuracy
from netem.cli.main import main
from netem.link import Link
from netem.packets.network import Packets

pytestmark = pytest.mark.packets

Start = Callable[..., Packets]
SIZE = 100_000


@pytest.mark.parametrize("kind", [OverPackets, OneByOne])
def test_packets_are_measured(start: Start, kind: type[OverPackets]) -> None:
    network = start(Link(0.0))
    with server(network.listen()) as (_, port):
        measured = kind(network, port)
        assert all(seconds >= 0.02 for seconds in measured.echo(0.02, 3))
        counts = network.take()
        assert (counts.connections, counts.bytes_up, counts.bytes_down) == (1, 5, 4)
        assert measured.bulk(SIZE) > 0
        assert network.link.trains is (kind is OverPackets)
        # Each of 1,448 bytes at the most, and acknowledgements: fewer than one for each.
        assert SIZE / 1448 < measured.packets() < 3 * SIZE / 1448
        assert measured.exchanges(20) > 0
        assert network.take().connections == 16


def test_the_command_has_a_row_of_them(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(Link(0.0)).close()  # or skip
    monkeypatch.setattr(accuracy, "measure", functools.partial(measure, echoes={0.01: 2}, bulk=SIZE, exchanges=20))
    assert main(["accuracy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = ["simulated", "none (loopback)", "proxy", "packets", "packets, one by one"]
    assert [each["name"] for each in found] == names
    assert found[-1]["late"]["0.01"]["median"] > 0
    assert found[-1]["packets_per_second"] > 0
