"""trace.perfetto: the events of Chrome's format."""

from __future__ import annotations

import json

import msgspec
from traces import push, read

from smartserver.trace.events import Event, RequestEnded, SpanEnded
from smartserver.trace.perfetto import REQUESTS, SERVER, SPANS, WAIT, perfetto


def slices(events: list[Event], process: int, thread: int) -> list[tuple[str, str, int, int]]:
    shown = json.loads(perfetto(read(events)))["traceEvents"]
    return [
        (each["cat"], each["name"], each["ts"], each["dur"])
        for each in shown
        if (each["ph"], each["pid"], each["tid"]) == ("X", process, thread)
    ]


def test_each_thread_has_its_slices() -> None:
    assert slices(push(), 7, SPANS) == [
        ("start", "git project", 0, 40_000), ("local", "plan project", 41_000, 11_000),
        ("local", "read project", 45_000, 5_000), ("connect", "TCP", 53_000, 1_000),
        ("link", "wait for the link", 55_000, 100_000),
    ]  # fmt: skip
    assert slices(push(), 7, REQUESTS) == [
        ("request", "Branch.tip project; Repository.open", 54_500, 101_500), ("request", "get", 157_000, 1_000),
    ]  # fmt: skip
    assert slices(push(), 7, SERVER)[:3] == [
        ("server", "somewhere in this time", 54_500, 100_500), ("queued", "queued", 84_500, 1_000),
        ("server", "commit project", 85_500, 39_500),
    ]  # fmt: skip
    assert sum(length for *_, length in slices(push(), 6, WAIT)) == 165_000


def test_what_does_not_nest_is_on_a_thread_of_its_own() -> None:
    request = next(each for each in push() if isinstance(each, RequestEnded))
    within = msgspec.structs.replace(request, start=request.start + 10, end=request.end - 10)
    crossing = SpanEnded(7, "local", 1_050_500, 1_053_500, "crossing")
    events = [*push(), within, crossing]
    assert [name for _, name, *_ in slices(events, 7, SPANS + 1)] == ["crossing"]
    assert [start for *_, start, _ in slices(events, 7, REQUESTS + 1)] == [54_510]
