"""A trace as Chrome's trace events, which Perfetto (ui.perfetto.dev), chrome://tracing and Speedscope open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from smartserver.spans import Part
from smartserver.trace.events import RequestEnded
from smartserver.trace.layout import ProcessTrack, nested, placement, process_tracks
from smartserver.trace.report import CALLED
from smartserver.trace.wait import UNNAMED, Trace, pieces

WAIT, SPANS, REQUESTS, SERVER = 1, 2, 100, 10_000
"""The threads of a process that its events are on. Requests that overlap have a thread each, from `REQUESTS` on, and
the server's work on them from `SERVER` on."""

Event = dict[str, Any]


def perfetto(traces: Sequence[Trace]) -> bytes:
    """The events of a file's traces as JSON. Their times are microseconds since the first of them began."""
    first = min(trace.start for trace in traces)
    events = [event for trace in traces for event in _events(trace, first)]
    return msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": events}) + b"\n"


def _events(trace: Trace, first: int) -> Iterator[Event]:
    tracks = process_tracks(trace)
    process = tracks[0].process if tracks else trace.process
    yield _named("thread_name", process, WAIT, f"the wait of {trace.program}")
    for piece in pieces(trace):
        yield _slice(process, WAIT, piece.start - first, piece.end - first, piece.part or UNNAMED, piece.name, {})
    for track in tracks:
        yield _named("process_name", track.process, SPANS, track.program)
        yield from _spans(track, first)
        yield from _requests(track, first)


def _spans(track: ProcessTrack, first: int) -> Iterator[Event]:
    yield _named("thread_name", track.process, SPANS, "spans")
    if track.began < track.recorded:
        yield _slice(track.process, SPANS, track.began - first, track.recorded - first, Part.START, track.program, {})
    for span, _ in nested(track.spans):
        told = {"processor time in ms": span.cpu / 1000, "times": span.count}
        yield _slice(track.process, SPANS, span.start - first, span.end - first, span.part, span.name, told)


def _requests(track: ProcessTrack, first: int) -> Iterator[Event]:
    process = track.process
    for lane, requests in enumerate(_lanes(track.requests)):
        yield _named("thread_name", process, REQUESTS + lane, "requests")
        for request in requests:
            yield _request(process, REQUESTS + lane, request, first)
        if any(placement(request) for request in requests):
            yield _named("thread_name", process, SERVER + lane, "server, by its own clock")
        for request in requests:
            yield from _served(process, SERVER + lane, request, first)


def _lanes(requests: Sequence[RequestEnded]) -> list[list[RequestEnded]]:
    """The requests apart where they overlap."""
    lanes: list[list[RequestEnded]] = []
    for request in sorted(requests, key=lambda each: each.start):
        free = next((lane for lane in lanes if lane[-1].end <= request.start), None)
        if free is None:
            lanes.append(free := [])
        free.append(request)
    return lanes


def _request(process: int, thread: int, request: RequestEnded, first: int) -> Event:
    told = {
        "arguments": request.arguments, "path": request.path, "result": request.result, "bytes up": request.up,
        "bytes down": request.down, "in the server in ms": request.in_server / 1000, "stack": request.stack,
    }  # fmt: skip
    name = "; ".join(request.verbs)
    return _slice(process, thread, request.start - first, request.end - first, "request", name, told)


def _served(process: int, thread: int, request: RequestEnded, first: int) -> Iterator[Event]:
    placed = placement(request)
    if placed is None:
        return
    start, end = placed.start - placed.slack, max(each.end for each in placed.spans) + placed.slack
    told = {"earlier or later by, in ms": placed.slack / 1000}
    yield _slice(process, thread, start - first, end - first, "server", "somewhere in this time", told)
    for span in placed.spans:
        yield _slice(process, thread, span.start - first, span.end - first, span.part, span.name, told)


def _slice(process: int, thread: int, start: int, end: int, part: str, name: str, told: Event) -> Event:
    return {
        "ph": "X", "pid": process, "tid": thread, "ts": start, "dur": end - start, "cat": part,
        "name": name or CALLED.get(part, part), "args": told,
    }  # fmt: skip


def _named(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}
