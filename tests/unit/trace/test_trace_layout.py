"""trace.layout: how deep spans lie, what each process did, and where its server did what."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from traces import ID, push, read

from smartserver.spans import Part
from smartserver.trace.events import ProcessBegan, ProcessEnded, RequestEnded, SpanEnded
from smartserver.trace.layout import nested, process_tracks, service
from smartserver.trace.wait import Piece
from smartserver.wire.messages import ServerSpan


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


def request(answered: int = 0, server: list[ServerSpan] | None = None, in_server: int = 0) -> RequestEnded:
    return RequestEnded(1, ["v"], "p", 100, 200, "ok", answered=answered, in_server=in_server, server=server or [])


def test_the_server_is_in_the_middle_of_what_it_may_have_taken() -> None:
    spans = [ServerSpan("queued", "", 0, 5), ServerSpan("server", "commit", 5, 30), ServerSpan("disk", "sync", 10, 20)]
    found = service(request(180, spans))
    assert found is not None
    assert (found.start, found.end, found.slack) == (100, 180, 25)
    assert found.spans == [
        Piece(125, 130, "queued", ""), Piece(130, 155, "server", "commit"), Piece(135, 145, "disk", "sync"),
    ]  # fmt: skip


def test_what_it_did_after_the_reply_is_after_the_margin() -> None:
    found = service(request(140, [ServerSpan("server", "answer", 10, 20), ServerSpan("server", "read", 60, 80)]))
    assert found is not None
    assert (found.start, found.end, found.slack) == (110, 200, 10)


def test_a_server_that_tells_only_how_long() -> None:
    found = service(request(180, in_server=40))
    assert found is not None
    assert (found.start, found.end, found.spans) == (100, 180, [Piece(120, 160, Part.SERVER, "")])


def test_a_server_that_tells_nothing_is_nowhere() -> None:
    assert service(request()) is None


def test_the_tracks_of_processes() -> None:
    (trace,) = read(push())
    (track,) = process_tracks(trace)
    assert (track.process, track.program, track.start, track.end) == (7, "git project", 1_000_000, 1_160_000)
    assert track.spans == [SpanEnded(7, Part.START, 1_000_000, 1_040_000, "git project"), *trace.spans]
    assert track.requests == trace.requests


def test_a_process_starts_no_earlier_than_its_command_and_ends_with_its_last_span() -> None:
    events = [
        push()[-1],
        ProcessBegan(8, 1, "late", ID, began=1_030_000, started=990_000), SpanEnded(8, "local", 1_030_000, 1_050_000),
        ProcessBegan(9, 1, "host", ID, began=1_020_000, is_host=True), ProcessEnded(9, 1_060_000, 1, 1, 1, 1),
        ProcessBegan(9, 1, "host", ID, 1_025_000),
    ]  # fmt: skip
    (trace,) = read(events)
    assert [(each.program, each.start, each.end) for each in process_tracks(trace)] == [
        ("host", 1_000_000, 1_060_000), ("late", 1_000_000, 1_050_000),
    ]  # fmt: skip
    assert process_tracks(trace)[0].spans[1] == SpanEnded(9, Part.LOCAL, 1_020_000, 1_060_000, "host itself")
