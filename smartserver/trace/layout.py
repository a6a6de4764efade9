"""The layout of a trace's bars, for every view of it: the tracks of each process, the depth of its spans, and the
margin around the server's work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from smartserver.trace.events import ProcessBegan, RequestEnded, SpanEnded
from smartserver.trace.wait import Piece, Trace, of_processes, placed

IntervalT = TypeVar("IntervalT", SpanEnded, RequestEnded, Piece)


class Service(NamedTuple):
    """The work of a server for a request. All of it was between `start` and `end`; `spans` are placed in the middle."""

    start: int
    end: int
    spans: list[Piece]
    slack: int
    """Microseconds by which all spans together may have been earlier or later."""


class ProcessTrack(NamedTuple):
    """The part of a trace that is about one process."""

    process: int
    program: str
    start: int
    """The start time of the process; if the system does not report it, the time at which recording began."""
    end: int
    """The end of the process's last event."""
    spans: list[SpanEnded]
    """The spans of the process, with its start and, for a host, its whole run."""
    requests: list[RequestEnded]


def nested(intervals: Iterable[IntervalT]) -> Iterator[tuple[IntervalT, Sequence[IntervalT]]]:
    """Yield each interval in order, with the intervals around it, outermost first. The number of these is the row of
    the interval. Intervals in one row do not overlap, even if some intervals do not nest."""
    around: list[IntervalT] = []
    for each in sorted(intervals, key=lambda each: (each.start, -each.end)):
        while around and around[-1].end <= each.start:
            around.pop()
        yield each, tuple(around)
        around.append(each)


def service(request: RequestEnded) -> Service | None:
    """Return the server's work for a request; None if the server reported none."""
    spans, slack = placed(request)
    if not spans:
        return None
    return Service(min(span.start for span in spans) - slack, max(each.end for each in spans) + slack, spans, slack)


def process_tracks(trace: Trace) -> list[ProcessTrack]:
    """Return the processes of a trace, in the order in which they began."""
    found: dict[int, ProcessBegan] = {}
    for each in sorted(trace.processes, key=lambda each: each.began):
        found.setdefault(each.process, each)
    return [_track(trace, each) for each in found.values()]


def _track(trace: Trace, began: ProcessBegan) -> ProcessTrack:
    process = began.process
    # The system rounds the start to 10 ms, so it may be before that of the command that started the process.
    known = [
        SpanEnded(process, piece.part, max(piece.start, trace.start), piece.end, piece.name)
        for number, piece in of_processes(trace)
        if number == process and piece.end > max(piece.start, trace.start)
    ]
    spans = [*known, *(span for span in trace.spans if span.process == process)]
    requests = [request for request in trace.requests if request.process == process]
    start = min([began.began, *(each.start for each in known)])
    ends = [each.at for each in trace.ends if each.process == process]
    end = max([began.began, *ends, *(each.end for each in spans), *(each.end for each in requests)])
    return ProcessTrack(process, began.program, start, end, spans, requests)
