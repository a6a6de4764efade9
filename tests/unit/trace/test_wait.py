"""trace.wait, report, diff, explain, predict: what a wait was spent on, and would be on another link."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver import meters
from smartserver.meters import METERS
from smartserver.spans import Part
from smartserver.trace import diff, explain
from smartserver.trace.events import (
    CommandEnded,
    Event,
    FindingMade,
    LinkMeasured,
    ProcessBegan,
    ProcessEnded,
    RequestEnded,
    SpanEnded,
    encode,
)
from smartserver.trace.explain import charges
from smartserver.trace.predict import (
    SEGMENT,
    LinkEstimate,
    predicted,
    window_opening,
)
from smartserver.trace.report import lines
from smartserver.trace.wait import UNNAMED, BadTrace, Trace, pieces, traces, wait
from smartserver.wire.limits import INITIAL_WINDOW as WINDOW
from smartserver.wire.messages import ServerSpan

TRACE = "0" * 32
PROCESS = 7


def trace_of(*events: Event, end: int = 1_000_000, trips: int = 1) -> Trace:
    """One command from 0 to `end` microseconds; its process recorded all the time but for 10,000 of each end."""
    began = ProcessBegan(process=PROCESS, version=1, program="ours", trace=TRACE, began=10_000, started=0)
    ended = ProcessEnded(process=PROCESS, at=end - 10_000, round_trips=trips, connections=0, up=0, down=0)
    command = CommandEnded(process=6, program="git", trace=TRACE, start=0, end=end, status=0)
    (found,) = traces(map(encode, [began, *events, ended, command]))
    return found


def request(start: int, end: int, verb: str = "Repository.pull", *, up: int = 100, down: int = 100) -> RequestEnded:
    """A request that is answered at its end."""
    return RequestEnded(PROCESS, [verb], "p", start, end, "ok", answered=end, up=up, down=down)


def span(part: str, start: int, end: int, name: str = "") -> SpanEnded:
    """A span."""
    return SpanEnded(PROCESS, part, start, end, name)


def finding(behaviour: str, *requests: int, cost: str = "request", where: str = "a.py:1 in f", share: float = 1.0,
            verb: str = "Repository.pull") -> FindingMade:  # fmt: skip
    """A finding about the requests that started then."""
    return FindingMade(PROCESS, behaviour, verb, "it is so", cost, list(requests), where, share)


def test_the_innermost_span_counts() -> None:
    spans = SpanEnded(7, "disk", 40_000, 45_000), SpanEnded(7, "local", 30_000, 50_000, "plan")
    found = wait(trace_of(*spans, end=100_000))
    assert found.total == 100_000
    assert found.parts == {"start": 10_000, "local": 25_000, "disk": 5_000, UNNAMED: 60_000}
    assert found.unnamed == 60_000
    assert found.names["local"] == {"plan": 15_000, "git, after the last call": 10_000}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([], "it has no trace: it is empty"),
        ([b"nonsense"], "it has no trace: line 1 is not an event"),
        ([encode(SpanEnded(1, "disk", 0, 1))], "line 1 is of process 1, which has not begun"),
        ([encode(ProcessBegan(7, 2, "a", TRACE, 10))], "its format is 2, and this release reads 1"),
    ],
)
def test_what_is_no_trace(content: list[bytes], why: str) -> None:
    with pytest.raises(BadTrace, match=why):
        traces(content)


def test_a_torn_line_and_an_event_of_a_later_release_cost_themselves_alone() -> None:
    began = encode(ProcessBegan(7, 1, "a", TRACE, 10, started=5))
    span = encode(SpanEnded(7, "disk", 20, 30))
    (found,) = traces([b'{"event":"weather","process":7}', began, span[:20], b"", span])
    assert (len(found.spans), found.start) == (1, 5)


span_of = st.builds(
    lambda part, start, length, name: SpanEnded(7, part, start, start + length, name),
    st.sampled_from(list(Part)),
    st.integers(0, 110_000),
    st.integers(0, 30_000),
    st.sampled_from(["", "a", "b"]),
)
server_span = st.builds(
    lambda part, start, length: ServerSpan(part, "", start, start + length),
    st.sampled_from(["disk", "server", "queued", "of a newer server"]),
    st.integers(0, 90_000),
    st.integers(0, 50_000),
)


@given(st.lists(span_of), st.lists(server_span), st.integers(30_000, 90_000))
def test_all_of_the_wait_is_in_one_piece_each(spans: list[SpanEnded], server: list[ServerSpan], answered: int) -> None:
    trace = trace_of(*spans, msgspec.structs.replace(request(30_000, answered), server=server), end=100_000)
    found = list(pieces(trace))
    assert found[0].start == 0
    assert found[-1].end == 100_000
    assert all(before.end == after.start for before, after in itertools.pairwise(found))
    assert sum(wait(trace).parts.values()) == wait(trace).total == 100_000


def test_the_report_adds_up() -> None:
    asked = msgspec.structs.replace(request(30_000, 60_000), server=[ServerSpan("server", "commit", 0, 10_000)])
    link = LinkMeasured(7, 20_100, 20_000, 12, 1448, 140, 2, 30_000)
    assert lines(trace_of(SpanEnded(7, "link", 30_000, 60_000), link, asked, end=100_000)) == [
        "git: 100.0 ms, 1 round trip, no fresh connections",
        "  start                  10.0 ms   10 %  ours 10.0 ms",
        "  local                  10.0 ms   10 %  git, after the last call 10.0 ms",
        "  wait for the link      20.0 ms   20 %",
        "  in the server          10.0 ms   10 %  commit 10.0 ms",
        "  unnamed                50.0 ms   50 %",
        "  TCP: RTT 20.1 ms (least 20.0 ms), window of 12 packets, 2 of 140 packets sent again, 30.0 ms with the "
        "server's window full",
        "",
        "  at 30.0 ms: Repository.pull on p: ok, 100 B up, 100 B down, 30.0 ms (0.0 ms in the server)",
    ]


def test_what_is_missing_is_said() -> None:
    ended = CommandEnded(process=6, program="git", trace=TRACE, start=0, end=100_000, status=128)
    began = ProcessBegan(process=7, version=1, program="git-remote-hpss", trace=TRACE, began=20_000, started=10_000)
    (nothing,) = traces([encode(ended)])
    assert lines(nothing)[1:3] == [
        "  It ended with status 128.",
        "  Nothing of it was recorded: it did not use a server, or its flags name another file.",
    ]
    (killed,) = traces(map(encode, [began, ended]))
    assert lines(killed)[2] == "  The trace is incomplete: 1 of its processes did not record their end."
    assert lines(trace_of())[1].startswith("  start")


def test_the_part_that_grew_comes_first_with_its_spans() -> None:
    before = trace_of(span("local", 100_000, 200_000, "read"), span("link", 200_000, 400_000), end=900_000)
    after = trace_of(
        span("local", 100_000, 400_000, "read"),
        span("local", 400_000, 450_000, "check"),
        span("link", 450_000, 700_000),
    )
    assert diff.lines(before, after)[:7] == [
        "                                             A           B  difference",
        "git, whole wait                       900.0 ms   1000.0 ms   +100.0 ms",
        "  local                               110.0 ms    360.0 ms   +250.0 ms",
        "    read                              100.0 ms    300.0 ms   +200.0 ms",
        "    check                               0.0 ms     50.0 ms    +50.0 ms",
        "  unnamed                             580.0 ms    380.0 ms   -200.0 ms",
        "  wait for the link                   200.0 ms    250.0 ms    +50.0 ms",
    ]


def test_requests_that_one_of_them_made() -> None:
    before = trace_of(request(100_000, 200_000), request(200_000, 300_000, "Repository.stats"))
    after = trace_of(*[request(start, start + 100_000) for start in (100_000, 200_000, 300_000)])
    said = diff.lines(before, after)
    assert said[-6:] == [
        "",
        "1 request in A only:",
        "  1 x Repository.stats on p: ok",
        "",
        "2 requests in B only:",
        "  2 x Repository.pull on p: ok",
    ]


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
    assert "150.0 ms (15 %): resend, Repository.pull" in explain.lines(trace)


def test_the_parts_that_are_worth_a_word_are_said_the_largest_first() -> None:
    spans = [span("local", 100_000, 200_000, "read"), span("connect", 200_000, 240_000), span("link", 240_000, 900_000)]
    said = explain.lines(trace_of(*spans))
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
    return [line for line in explain.lines(trace_of(*events)) if line.startswith("  TCP: ")]


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
    assert [line for line in explain.lines(trace_of(asked)) if "server that had" in line] == said


FAST = LinkEstimate(0.1)
TINY = 1e-3


def test_each_request_and_each_handshake_is_a_round_trip() -> None:
    trace = trace_of(
        span("connect", 100_000, 120_000, "TCP"),
        span("connect", 120_000, 140_000, "TLS"),
        request(200_000, 300_000),
        span("link", 200_000, 300_000),
        request(300_000, 400_000),
        span("link", 300_000, 400_000),
        trips=2,
    )
    assert predicted(trace, FAST) == pytest.approx(1.0 - 0.04 - 0.2 + 4 * 0.1)
    assert predicted(trace, LinkEstimate(1.0)) - predicted(trace, FAST) == pytest.approx(4 * 0.9)


@pytest.mark.parametrize(("windows", "rounds"), [(1, 0), (1 + TINY, 1), (3, 1), (3 + TINY, 2), (127, 6)])
def test_the_window_opens_by_round_trips(windows: float, rounds: int) -> None:
    body = request(200_000, 300_000, up=round(windows * WINDOW) - 2 * SEGMENT)
    assert predicted(trace_of(body, span("link", 200_000, 300_000)), FAST) == pytest.approx(1.0 + rounds * 0.1)


def test_bytes_take_their_time_at_the_rate() -> None:
    trace = trace_of(request(200_000, 300_000, up=SEGMENT * 1000 - 2 * SEGMENT, down=0), span("link", 200_000, 300_000))
    assert predicted(trace, LinkEstimate(0.0, 1_500_000.0)) == pytest.approx(0.9 + 1.0)


def test_an_open_window_stays_open_on_its_connection() -> None:
    size = 7 * WINDOW - SEGMENT
    first, second = request(200_000, 300_000, down=size), request(400_000, 500_000, down=size)
    waits = [span("link", 200_000, 300_000), span("link", 400_000, 500_000)]
    held = predicted(trace_of(first, second, *waits, trips=2), FAST)
    assert held == pytest.approx(0.8 + 2 * 0.1 + 2 * 0.1)
    again = span("connect", 350_000, 351_000, "TCP")
    fresh = predicted(trace_of(first, again, second, *waits, trips=2), FAST)
    assert fresh == pytest.approx(held - 0.001 + 0.1 + 2 * 0.1)


def test_slow_packets_end_slow_start_early() -> None:
    """Two packets take longer than Linux takes for chance, and the window stays below what the link holds."""
    body = trace_of(request(200_000, 300_000, down=1_000_000), span("link", 200_000, 300_000))
    rate = 125_000.0
    least = 0.9 + 1.0 + 1_000_000 * 1500 / SEGMENT / rate
    assert 3.0 < predicted(body, LinkEstimate(1.0, rate)) - least < 8.0
    assert predicted(body, LinkEstimate(1.0, 10 * rate)) < predicted(body, LinkEstimate(1.0, rate))


def test_a_request_to_a_process_of_this_machine_crosses_no_link() -> None:
    """That process makes requests of its own while it answers, as for `hpss+vfs://`."""
    inner = [msgspec.structs.replace(request(start, start + 50_000), process=8) for start in (300_000, 400_000)]
    began = ProcessBegan(process=8, version=1, program="server", trace=TRACE, began=250_000)
    waits = [SpanEnded(8, "link", each.start, each.end) for each in inner]
    trace = trace_of(request(200_000, 600_000), span("link", 200_000, 600_000), began, *inner, *waits)
    assert predicted(trace, FAST) == pytest.approx(1.0 - 2 * 0.05 + 2 * 0.1)


def cost_of_window(down: int, end: int) -> tuple[int, int]:
    """The result of `window_opening` for an answer of that size, on a connection that was opened in 100 ms."""
    asked = msgspec.structs.replace(request(200_000, end, down=down), answered=300_000)
    return window_opening(trace_of(span("connect", 100_000, 200_000, "TCP"), asked))


def test_what_a_fresh_window_cost() -> None:
    assert cost_of_window(WINDOW * 3 - SEGMENT, 400_000) == (1, 100_000)
    assert cost_of_window(WINDOW * 7 - SEGMENT, 450_000) == (2, 150_000)  # It was open sooner than that takes.
    assert cost_of_window(WINDOW, 400_000) == (0, 0)
    assert cost_of_window(WINDOW * 3 - SEGMENT, 900_000) == (0, 0), "it is the rate that took so long"
