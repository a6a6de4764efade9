"""trace.wait, trace.report: each instant of a wait is counted once, and nothing is left out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.spans import Part
from smartserver.trace.events import (
    CommandEnded,
    Event,
    LinkMeasured,
    ProcessBegan,
    ProcessEnded,
    RequestEnded,
    SpanEnded,
    encode,
)
from smartserver.trace.report import lines
from smartserver.trace.wait import UNNAMED, BadTrace, Trace, pieces, placed, traces, wait
from smartserver.wire.messages import ServerSpan

TRACE = "0" * 32


def trace_of(*events: Event) -> Trace:
    """The trace of one command that took from 0 to 100,000 and had one process from 20,000 to 90,000."""
    began = ProcessBegan(process=7, version=1, program="git-remote-hpss", trace=TRACE, began=20_000, started=10_000)
    ended = ProcessEnded(process=7, at=90_000, round_trips=1, connections=0, up=10, down=20)
    command = CommandEnded(process=6, program="git", trace=TRACE, start=0, end=100_000, status=0)
    (found,) = traces(map(encode, [began, *events, ended, command]))
    return found


def request(*, answered: int, server: list[ServerSpan], in_server: int = 0) -> RequestEnded:
    """One that began at 30,000 and ended with its answer."""
    return RequestEnded(
        process=7,
        verbs=["Repository.pull"],
        path="p",
        start=30_000,
        end=answered,
        answered=answered,
        result="ok",
        up=10,
        down=20,
        in_server=in_server,
        server=server,
    )


def test_the_innermost_span_counts() -> None:
    found = wait(trace_of(SpanEnded(7, "disk", 40_000, 45_000), SpanEnded(7, "local", 30_000, 50_000, "plan")))
    assert found.total == 100_000
    assert found.parts == {"start": 20_000, "local": 25_000, "disk": 5_000, UNNAMED: 50_000}
    assert found.unnamed == 50_000
    assert found.names["local"] == {"plan": 15_000, "git, after the last call": 10_000}


def test_the_server_works_while_the_client_waits() -> None:
    spans = [ServerSpan("disk", "sync", 5_000, 8_000), ServerSpan("server", "commit", 1_000, 10_000)]
    asked = request(answered=60_000, server=spans, in_server=9_000)
    # The server had 10 of the 30 ms; the others are those of the link, half of them on the way up.
    assert placed(asked).within == 10_000
    assert placed(asked).spans[0].start == 45_000
    found = wait(trace_of(SpanEnded(7, "link", 31_000, 59_000), asked))
    assert (found.parts["link"], found.parts["server"], found.parts["disk"]) == (19_000, 6_000, 3_000)


def test_what_the_server_does_while_the_client_works_is_beside() -> None:
    asked = request(answered=60_000, server=[ServerSpan("server", "check", 0, 30_000)])
    found = wait(trace_of(SpanEnded(7, "send", 30_000, 50_000), SpanEnded(7, "link", 50_000, 60_000), asked))
    assert (found.parts["send"], found.parts["link"], found.parts["server"]) == (20_000, 0, 10_000)


def test_a_server_that_tells_no_spans_counts_by_its_own_count() -> None:
    asked = request(answered=60_000, server=[], in_server=9_000)
    found = wait(trace_of(SpanEnded(7, "link", 30_000, 60_000), asked))
    assert (found.parts["link"], found.parts["server"]) == (21_000, 9_000)


def test_a_guest_leaves_the_rest_to_its_host() -> None:
    began = ProcessBegan(process=7, version=1, program="brz", trace=TRACE, began=20_000, is_host=True)
    ended = ProcessEnded(process=7, at=90_000, round_trips=0, connections=0, up=0, down=0)
    (found,) = traces(map(encode, [began, SpanEnded(7, "disk", 30_000, 40_000), ended]))
    assert (found.start, found.end) == (20_000, 90_000)
    assert wait(found).parts == {"disk": 10_000, "local": 60_000}
    assert wait(found).names["local"] == {"brz itself": 60_000}


def test_commands_of_one_file_are_told_apart() -> None:
    first, second = "1" * 32, "2" * 32
    written = [
        ProcessBegan(process=8, version=1, program="b", trace=second, began=50, started=50),
        ProcessBegan(process=7, version=1, program="a", trace=first, began=10, started=10),
        SpanEnded(8, "disk", 60, 70),
        SpanEnded(7, "disk", 20, 30),
    ]
    assert [(each.program, len(each.spans)) for each in traces(map(encode, written))] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([], "there is no trace in it: it is empty"),
        ([b"nonsense"], "there is no trace in it: line 1 is not an event"),
        ([encode(SpanEnded(1, "disk", 0, 1))], "line 1 is of process 1, which has not begun"),
        ([b'{"event":"span"}'], "line 1 is not an event"),
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
    st.sampled_from(["disk", "server", "lock", "queued"]),
    st.integers(0, 90_000),
    st.integers(0, 50_000),
)


@given(st.lists(span_of), st.lists(server_span), st.integers(30_000, 90_000))
def test_all_of_the_wait_is_in_one_piece_each(spans: list[SpanEnded], server: list[ServerSpan], answered: int) -> None:
    trace = trace_of(*spans, request(answered=answered, server=server))
    found = list(pieces(trace))
    assert found[0].start == 0
    assert found[-1].end == 100_000
    assert all(before.end == after.start for before, after in itertools.pairwise(found))
    assert sum(wait(trace).parts.values()) == wait(trace).total == 100_000


def test_the_report_adds_up() -> None:
    asked = request(answered=60_000, server=[ServerSpan("server", "commit", 0, 10_000)])
    link = LinkMeasured(7, 20_100, 20_000, 12, 1448, 140, 2, 30_000)
    assert lines(trace_of(SpanEnded(7, "link", 30_000, 60_000), link, asked)) == [
        "git: 100.0 ms, 1 round trip, no fresh connections",
        "  start                  20.0 ms   20 %  git-remote-hpss 20.0 ms",
        "  local                  10.0 ms   10 %  git, after the last call 10.0 ms",
        "  wait for the link      20.0 ms   20 %",
        "  in the server          10.0 ms   10 %  commit 10.0 ms",
        "  unnamed                40.0 ms   40 %",
        "  TCP: RTT 20.1 ms (least 20.0 ms), window of 12 packets, 2 of 140 packets sent again, 30.0 ms with the "
        "server's window full",
        "",
        "  at 30.0 ms: Repository.pull on p: ok, 10 B up, 20 B down, 30.0 ms (0.0 ms in the server)",
    ]


def test_what_a_server_does_while_this_side_sends_is_in_no_part() -> None:
    asked = request(answered=60_000, server=[ServerSpan("server", "check", 0, 20_000)])  # From 35,000 to 55,000.
    found = wait(trace_of(asked, SpanEnded(7, "send", 30_000, 40_000), SpanEnded(7, "link", 40_000, 60_000)))
    assert (found.parts["server"], found.overlapped) == (15_000, 5_000)


def test_the_start_of_a_process_that_is_waited_for() -> None:
    began = ProcessBegan(process=9, version=1, program="server", trace=TRACE, began=50_000, started=40_000)
    found = wait(trace_of(SpanEnded(7, "link", 45_000, 60_000), began))
    assert (found.parts["start"], found.parts["link"]) == (20_000 + 10_000, 10_000)
    assert found.overlapped == 0


def test_the_text_has_the_processor_time_and_what_overlapped() -> None:
    asked = request(answered=60_000, server=[ServerSpan("server", "check", 0, 20_000)])
    trace = trace_of(asked, SpanEnded(7, "send", 30_000, 40_000), SpanEnded(7, "link", 40_000, 60_000))
    assert trace.command is not None
    trace.command.cpu = 42_000
    shown = lines(trace)
    assert shown[0] == "git: 100.0 ms (42.0 ms of processor time), 1 round trip, no fresh connections"
    assert "  meanwhile in the server      5.0 ms" in shown


def test_what_is_missing_is_said() -> None:
    ended = CommandEnded(process=6, program="git", trace=TRACE, start=0, end=100_000, status=128)
    began = ProcessBegan(process=7, version=1, program="git-remote-hpss", trace=TRACE, began=20_000, started=10_000)
    (nothing,) = traces([encode(ended)])
    assert lines(nothing)[1:3] == [
        "  It ended with status 128.",
        "  Nothing of it was recorded: it did not use a server, or its flags name another file.",
    ]
    (killed,) = traces(map(encode, [began, ended]))
    assert lines(killed)[2] == "  The trace is not whole: 1 of its processes did not record their end."
    assert lines(trace_of())[1].startswith("  start")
