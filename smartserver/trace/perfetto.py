"""Converts traces to Chrome's trace events, which Perfetto (ui.perfetto.dev), chrome://tracing and Speedscope open.

These viewers require that the slices of a thread nest. A slice that does not nest is put on another thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from smartserver.trace.events import RequestEnded
from smartserver.trace.layout import ProcessTrack, process_tracks, service
from smartserver.trace.report import CALLED
from smartserver.trace.wait import UNNAMED, Trace, pieces

WAIT, SPANS, REQUESTS, SERVER = 1, 1000, 2000, 3000
"""The ids of a process's threads, in the order of the viewer. The ids after each are for slices that do not nest."""

Event = dict[str, Any]


def perfetto(traces: Sequence[Trace]) -> bytes:
    """Return the events of a file's traces as JSON. Times are microseconds since the first trace began."""
    first = min(trace.start for trace in traces)
    events = [event for trace in traces for event in _events(trace, first)]
    return msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": events}) + b"\n"


def _events(trace: Trace, first: int) -> Iterator[Event]:
    tracks = process_tracks(trace)
    process = (trace.command or trace.processes[0]).process
    whole = (_slice(first, each.start, each.end, each.part or UNNAMED, each.name) for each in pieces(trace))
    yield from _thread(process, WAIT, f"the wait of {trace.program}", whole)
    for track in tracks:
        name = {"name": track.program}
        yield {"ph": "M", "pid": track.process, "tid": WAIT, "name": "process_name", "args": name}
        requests = (_request(first, each) for each in track.requests)
        served = (each for request in track.requests for each in _served(first, request))
        yield from _thread(track.process, SPANS, "spans", _spans(first, track))
        yield from _thread(track.process, REQUESTS, "requests", requests, nest=False)
        yield from _thread(track.process, SERVER, "the server, by its own clock", served)


def _spans(first: int, track: ProcessTrack) -> Iterator[Event]:
    for span in track.spans:
        told = {"processor time in ms": span.cpu / 1000, "times": span.count}
        yield _slice(first, span.start, span.end, span.part, span.name, told)


def _request(first: int, request: RequestEnded) -> Event:
    told = {
        "arguments": request.arguments, "path": request.path, "result": request.result, "bytes up": request.up,
        "bytes down": request.down, "in the server in ms": request.in_server / 1000, "called from": request.where,
        "the server counted": request.counts,
    }  # fmt: skip
    return _slice(first, request.start, request.end, "request", "; ".join(request.verbs), told)


def _served(first: int, request: RequestEnded) -> Iterator[Event]:
    served = service(request)
    if served is not None:
        told = {"earlier or later by, in ms": served.slack / 1000}
        yield _slice(first, served.start, served.end, "server", "somewhere in this time", told)
        for span in served.spans:
            yield _slice(first, span.start, span.end, span.part, span.name, told)


def _slice(first: int, start: int, end: int, part: str, name: str, told: Event | None = None) -> Event:
    named = name or CALLED.get(part, part)
    return {"ph": "X", "ts": start - first, "dur": end - start, "cat": part, "name": named, "args": told or {}}


def _thread(process: int, thread: int, name: str, slices: Iterable[Event], *, nest: bool = True) -> Iterator[Event]:
    """Yield the slices of a thread, and the event with its name. With `nest`, a slice may contain others; without,
    overlapping slices are put on further threads."""
    until: list[list[int]] = []
    """The ends of the open slices: one list for the thread, and one for each further thread."""
    for each in sorted(slices, key=lambda each: (each["ts"], -each["dur"])):
        start, end = each["ts"], each["ts"] + each["dur"]
        for ends in until:
            while ends and ends[-1] <= start:
                ends.pop()
        fitting = [number for number, ends in enumerate(until) if not ends or (nest and end <= ends[-1])]
        lane = min(fitting, default=len(until))
        if lane == len(until):
            until.append([])
            yield {"ph": "M", "pid": process, "tid": thread + lane, "name": "thread_name", "args": {"name": name}}
        until[lane].append(end)
        yield {**each, "pid": process, "tid": thread + lane}
