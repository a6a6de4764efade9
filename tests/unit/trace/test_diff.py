"""trace.diff: the parts of the wait that differ, the largest difference first, and requests of one side."""

from __future__ import annotations

from trace_cases import request, span, trace_of

from smartserver.trace.diff import lines


def test_the_part_that_grew_comes_first_with_its_spans() -> None:
    before = trace_of(span("local", 100_000, 200_000, "read"), span("link", 200_000, 400_000), end=900_000)
    after = trace_of(
        span("local", 100_000, 400_000, "read"),
        span("local", 400_000, 450_000, "check"),
        span("link", 450_000, 700_000),
    )
    assert lines(before, after)[:7] == [
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
    said = lines(before, after)
    assert said[-6:] == [
        "",
        "1 request in A only:",
        "  1 x Repository.stats on p: ok",
        "",
        "2 requests in B only:",
        "  2 x Repository.pull on p: ok",
    ]
