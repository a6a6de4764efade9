"""trace.wait, trace.report: each instant of a wait is counted once, and nothing is left out."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_cases import TRACE, request, trace_of

from smartserver.spans import Part
from smartserver.trace.events import CommandEnded, LinkMeasured, ProcessBegan, SpanEnded, encode
from smartserver.trace.report import lines
from smartserver.trace.wait import UNNAMED, BadTrace, pieces, traces, wait
from smartserver.wire.messages import ServerSpan


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
        ([], "there is no trace in it: it is empty"),
        ([b"nonsense"], "there is no trace in it: line 1 is not an event"),
        ([encode(SpanEnded(1, "disk", 0, 1))], "line 1 is of process 1, which has not begun"),
        ([encode(ProcessBegan(7, 2, "a", TRACE, 10))], "its format is 2, and this release reads 1"),
    ],
)
def test_what_is_no_trace(content: list[bytes], why: str) -> None:
    with pytest.raises(BadTrace, match=why):
        traces(content)


def test_a_torn_line_costs_itself_alone() -> None:
    began = encode(ProcessBegan(7, 1, "a", TRACE, 10, started=5))
    span = encode(SpanEnded(7, "disk", 20, 30))
    (found,) = traces([began, span[:20], b"", span])
    assert len(found.spans) == 1


def test_events_of_later_releases_are_skipped() -> None:
    began = ProcessBegan(process=7, version=1, program="a", trace=TRACE, began=10, started=5)
    (found,) = traces([b'{"event":"weather","process":7}', encode(began)])
    assert found.start == 5


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
