"""trace.layout: how deep spans lie, and where the server's work does."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from traces import ID, push, read

from smartserver.spans import Part
from smartserver.trace.events import ProcessBegan, RequestEnded, ServerSpan, SpanEnded
from smartserver.trace.layout import nested, placement, process_tracks


class Stretch(NamedTuple):
    start: int
    end: int


@pytest.mark.parametrize(
    ("stretches", "depths"),
    [
        ([], []),
        ([(0, 5), (5, 9)], [0, 0]),
        ([(2, 4), (0, 9), (4, 9), (3, 4)], [0, 1, 2, 1]),
        ([(0, 5), (0, 9)], [0, 1]),
        ([(0, 9), (5, 12), (10, 14), (13, 20), (21, 22)], [0, 1, 2, 3, 0]),  # Crossing ones are drawn apart.
    ],
)
def test_depths(stretches: list[tuple[int, int]], depths: list[int]) -> None:
    found = list(nested(Stretch(*each) for each in stretches))
    assert [len(around) for _, around in found] == depths
    assert [each.start for each, _ in found] == sorted(start for start, _ in stretches)


def request(in_server: int = 0, answered: int = 0, server: list[ServerSpan] | None = None) -> RequestEnded:
    return RequestEnded(1, ["v"], "p", 100, 200, "ok", answered=answered, in_server=in_server, server=server or [])


def test_the_server_is_in_the_middle_of_what_it_may_have_taken() -> None:
    placed = placement(request(in_server=40, answered=180))
    assert placed is not None
    assert (placed.earliest, placed.start, placed.slack, placed.latest) == (100, 120, 20, 180)
    assert placed.spans == [ServerSpan(Part.SERVER, "", 120, 160)]


def test_its_spans_are_in_the_clients_time_by_their_starts() -> None:
    spans = [ServerSpan("disk", "sync", 10, 20), ServerSpan("server", "commit", 5, 30), ServerSpan("queued", "", 0, 5)]
    placed = placement(request(9, 180, spans))
    assert placed is not None
    assert placed.spans == [
        ServerSpan("queued", "", 125, 130), ServerSpan("server", "commit", 130, 155),
        ServerSpan("disk", "sync", 135, 145),
    ]  # fmt: skip
    assert placed.slack == 25


@pytest.mark.parametrize(
    ("answered", "worked", "slack"),
    [
        (180, 80, 0),
        (180, 90, 5),  # It worked on for the body, which ends at 200.
        (0, 60, 20),  # Nobody knows when the answer began.
        (180, 130, 0),  # Its clock is faster.
    ],
)
def test_what_limits_it(answered: int, worked: int, slack: int) -> None:
    placed = placement(request(0, answered, [ServerSpan("server", "", 0, worked)]))
    assert placed is not None
    assert (placed.start, placed.slack) == (100 + slack, slack)


def test_a_server_that_tells_nothing_is_nowhere() -> None:
    assert placement(request()) is None


def test_the_tracks_of_processes() -> None:
    (trace,) = read(push())
    (track,) = process_tracks(trace)
    assert (track.process, track.program) == (7, "git project")
    assert (track.start, track.recorded, track.end) == (1_010_000, 1_040_000, 1_160_000)
    assert (track.spans, track.requests) == (trace.spans, trace.requests)


def test_a_process_starts_no_earlier_than_its_command_and_ends_with_its_last_span() -> None:
    events = [
        push()[-1], ProcessBegan(8, 1, "late", ID, began=1_030_000), SpanEnded(8, "local", 1_030_000, 1_050_000),
        ProcessBegan(9, 1, "first", ID, began=1_020_000, started=990_000), ProcessBegan(9, 1, "first", ID, 1_025_000),
    ]  # fmt: skip
    (trace,) = read(events)
    assert [(each.program, each.start, each.recorded, each.end) for each in process_tracks(trace)] == [
        ("first", 1_000_000, 1_020_000, 1_020_000), ("late", 1_030_000, 1_030_000, 1_050_000),
    ]  # fmt: skip
