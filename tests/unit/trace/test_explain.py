"""trace.explain: what was found is priced, and said in order of cost; and what else the user waited for."""

from __future__ import annotations

import msgspec
import pytest
from trace_cases import PROCESS, finding, request, span, trace_of

from smartserver import meters
from smartserver.meters import METERS
from smartserver.trace.events import Event, LinkMeasured
from smartserver.trace.explain import charges, lines
from smartserver.wire.limits import INITIAL_WINDOW as WINDOW


def test_the_dearest_comes_first_and_a_line_is_named_once() -> None:
    starts = [100_000 * number for number in range(1, 8)]
    asked = [request(start, start + 100_000) for start in starts]
    found = [
        finding("duplicate", starts[0], where="a.py:1 in f"),
        finding("per-item", starts[2], starts[3], where="b.py:2 in g", verb="get"),
        finding("per-item", starts[4], where="b.py:2 in g", verb="put"),
        finding("duplicate", starts[5], where="a.py:9 in f"),
    ]
    first, *others = charges(trace_of(*asked, *found))
    assert (first.finding.behaviour, list(first.verbs), first.times) == ("per-item", ["get", "put"], 3)
    assert (first.trips, first.micro) == (3, 300_000)
    assert [each.finding.where for each in others] == ["a.py:1 in f", "a.py:9 in f"]


def test_a_connection_costs_its_handshakes_and_what_it_took() -> None:
    trace = trace_of(
        span("connect", 20_000, 60_000),
        request(100_000, 200_000),
        span("connect", 200_000, 240_000, "TCP"),
        span("connect", 240_000, 280_000, "TLS"),
        span("connect", 200_000, 290_000),
        request(300_000, 400_000),
        finding("extra-connection", 300_000, cost="connection"),
    )
    (charge,) = charges(trace)
    assert (charge.trips, charge.micro) == (2, 90_000)


def test_bytes_cost_the_time_on_the_link_beyond_the_round_trip_by_their_share() -> None:
    trace = trace_of(
        request(100_000, 200_000),
        request(200_000, 700_000, up=1_000_000),
        span("send", 200_000, 500_000),
        span("local", 500_000, 600_000),
        span("link", 600_000, 800_000),
        finding("resend", 200_000, cost="body", share=0.5),
    )
    (charge,) = charges(trace)
    assert (charge.trips, charge.micro) == (0, 150_000)
    assert "150.0 ms (15 %): resend, Repository.pull" in lines(trace)


def test_the_parts_that_are_worth_a_word_are_said_the_largest_first() -> None:
    spans = [span("local", 100_000, 200_000, "read"), span("connect", 200_000, 240_000), span("link", 240_000, 900_000)]
    said = lines(trace_of(*spans))
    assert said[said.index("Where the time went:") + 1 :] == [
        "  660.0 ms (66 %): The link carried the requests and answers.",
        "  180.0 ms (18 %): Nothing says what this time went to.",
        "  110.0 ms (11 %): This machine worked: read.",
    ]


@pytest.mark.parametrize(
    ("again", "packets", "by_window", "said"),
    [
        (0, 1000, 10_000, []),
        (2, 1000, 60_000, ["  TCP: 60.0 ms the server's receive window was full (net.ipv4.tcp_rmem)."]),
        # It was full for longer than the link was waited for: this side did something else meanwhile.
        (2, 1000, 700_000, ["  TCP: 500.0 ms the server's receive window was full (net.ipv4.tcp_rmem)."]),
        (30, 1000, 0, ["  TCP: 30 of 1000 packets from here were lost and sent again."]),
        (3, 100, 0, []),
        # The kernel asks whether a window is still full by packets that it counts as sent again.
        (30, 1000, 60_000, ["  TCP: 60.0 ms the server's receive window was full (net.ipv4.tcp_rmem)."]),
    ],
)
def test_what_the_kernel_saw_is_said_where_it_cost_time(
    again: int, packets: int, by_window: int, said: list[str]
) -> None:
    link = LinkMeasured(PROCESS, 20_000, 20_000, 10, 1448, packets, again, by_window)
    assert tcp(link, span("link", 100_000, 600_000)) == said


def tcp(*events: Event) -> list[str]:
    """The lines about TCP."""
    return [line for line in lines(trace_of(*events)) if line.startswith("  TCP: ")]


def test_what_the_server_saw_is_said_too() -> None:
    counts = {"tcp_again": 0, "tcp_packets": 500, "tcp_by_window": 30_000, "file_syncs": 1}
    asked = [msgspec.structs.replace(request(start, start + 100_000), counts=counts) for start in (100_000, 200_000)]
    link = LinkMeasured(PROCESS, 1, 1, 10, 1448, 9, 0, 0)
    assert tcp(link, span("link", 100_000, 300_000), *asked) == [
        "  TCP: 60.0 ms this machine's receive window was full (net.ipv4.tcp_rmem).",
    ]
    counts |= {"tcp_again": 15, "tcp_by_window": 0}
    assert tcp(link, *asked) == ["  TCP: 30 of 1000 packets from the server were lost and sent again."]


def test_a_socket_that_delays_small_packets_is_named() -> None:
    link = LinkMeasured(PROCESS, 1, 1, 10, 1448, 9, 0, 0, delays=1)
    assert tcp(link) == ["  TCP: this program's socket delays small packets (Nagle's algorithm): set TCP_NODELAY."]
    asked = msgspec.structs.replace(request(100_000, 200_000), counts={"tcp_delays": 1, "tcp_packets": 1})
    (said,) = tcp(LinkMeasured(PROCESS, 1, 1, 10, 1448, 9, 0, 0), asked)
    assert said.startswith("  TCP: the server's socket delays small packets")


@pytest.mark.parametrize(
    ("held", "said"), [(WINDOW, []), (20_000, ["  3 revisions, 20.0 KB, came to a server that had them."])]
)
def test_what_the_server_had_is_named(held: int, said: list[str]) -> None:
    names = (METERS[meters.STORED].name, METERS[meters.STORED_BYTES].name)
    asked = msgspec.structs.replace(request(100_000, 200_000), counts=dict(zip(names, (3, held), strict=True)))
    assert [line for line in lines(trace_of(asked)) if "server that had" in line] == said
