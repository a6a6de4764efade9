"""trace.predict: what the machines did takes as long, what the link does follows from round-trip time and rate."""

from __future__ import annotations

import msgspec
import pytest
from trace_cases import TRACE, request, span, trace_of

from smartserver.trace.events import ProcessBegan, SpanEnded
from smartserver.trace.predict import (
    SEGMENT,
    LinkEstimate,
    predicted,
    window_opening,
)
from smartserver.wire.limits import INITIAL_WINDOW as WINDOW

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
