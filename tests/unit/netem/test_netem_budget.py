from __future__ import annotations

import re

import pytest
from simulated_servers import Echo

from netem.budget import SHOWN_MESSAGES, TooManyRoundTrips, explain, round_trips
from netem.link import Link
from netem.simulated import SimulatedNetwork, SimulatedStream


def pings(stream: SimulatedStream, times: int) -> None:
    for _ in range(times):
        stream.send(b"ping")
        stream.read(9)


def test_beyond_it_the_messages_are_listed_in_order_with_who_sent_them() -> None:
    net = SimulatedNetwork(Link(1.0))
    with pytest.raises(TooManyRoundTrips) as caught, round_trips(net, at_most=2):
        pings(net.connect(Echo), 2)
    line = r"\S*/(test_netem_budget\.py):\d+ in "
    shown = re.sub(f"from {line}pings < {line}test_.*who_sent_them", r"from \1 < \2", str(caught.value))
    assert shown.splitlines() == [
        "at most 2 round trips allowed; took 3 round trips (1 of them opening connections), 1 connection, 8 bytes up, "
        "8 bytes down, waited 3 RTT",
        "  the same 4 bytes were sent 2 times from test_netem_budget.py < test_netem_budget.py: an N+1?",
        "  connection 1  -> server  depth 3  sent 0.000 s, delivered 0.500 s: 4 bytes",
        "      from test_netem_budget.py < test_netem_budget.py",
        "  connection 1  client <-  depth 4  sent 0.500 s, delivered 1.000 s: 4 bytes",
        "  connection 1  -> server  depth 5  sent 1.000 s, delivered 1.500 s: 4 bytes",
        "      from test_netem_budget.py < test_netem_budget.py",
        "  connection 1  client <-  depth 6  sent 1.500 s, delivered 2.000 s: 4 bytes",
    ]


def test_messages_of_a_known_protocol_are_described() -> None:
    net = SimulatedNetwork(Link(1.0))
    net.connect(Echo).send(b"GET /items HTTP/1.1\r\n\r\n")
    assert ": 23 bytes  GET /items\n" in explain(net.take())


def test_handshakes_may_be_left_out() -> None:
    net = SimulatedNetwork(Link(1.0))
    with round_trips(net, at_most=1, handshake=False):
        pings(net.connect(Echo), 1)
    with (
        pytest.raises(TooManyRoundTrips, match="allowed without handshakes"),
        round_trips(net, at_most=1, handshake=False),
    ):
        pings(net.connect(Echo), 2)


def test_an_error_in_the_block_is_the_one_seen() -> None:
    net = SimulatedNetwork(Link(1.0))
    with pytest.raises(ConnectionRefusedError), round_trips(net, at_most=0):
        net.connect(None)


def test_a_long_list_is_cut() -> None:
    net = SimulatedNetwork(Link(1.0))
    pings(net.connect(Echo), SHOWN_MESSAGES)
    lines = explain(net.take()).splitlines()
    assert sum(line.startswith("  connection") for line in lines) == SHOWN_MESSAGES
    assert lines[-1] == f"  and {SHOWN_MESSAGES} messages more"


def test_what_did_not_arrive_and_ends_of_streams_are_shown() -> None:
    net = SimulatedNetwork(Link(1.0))
    stream = net.connect(Echo)
    stream.send(b"x")
    stream.half_close()
    assert explain(net.take()).splitlines()[-2].endswith("not delivered: 1 byte and end of stream")
