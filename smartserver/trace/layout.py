"""Where the bars of a trace lie, for every view of it: a track for the whole wait, for the spans of each process, for
its requests, and for what the server did.

The server counts from the first byte that it had of a request, and its clock is not the client's. Its first instant
lies between the start of the request and the answer, less the time until its last span ended. What lies between these
two went up or down; nobody can tell which. So its spans are placed in the middle, with half of that as `slack` to both
sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from smartserver.spans import Part
from smartserver.trace.events import ProcessBegan, RequestEnded, ServerSpan, SpanEnded
from smartserver.trace.wait import Trace


class Interval(Protocol):
    """What has a start and an end."""

    @property
    def start(self) -> int:
        """Its first microsecond."""

    @property
    def end(self) -> int:
        """The first after it."""


IntervalT = TypeVar("IntervalT", bound=Interval)


class Placement(NamedTuple):
    """Where the work of a server lies in its client's time."""

    start: int
    """When it had the first byte, or `slack` earlier, or later."""
    slack: int
    spans: list[ServerSpan]
    """In the client's time, by their starts."""

    @property
    def earliest(self) -> int:
        """Nothing of it was before."""
        return self.start - self.slack

    @property
    def latest(self) -> int:
        """Nothing of it was after."""
        return max(each.end for each in self.spans) + self.slack


class ProcessTrack(NamedTuple):
    """What a trace has of one process."""

    process: int
    program: str
    start: int
    """When it was started; where the system does not tell, when it began to record."""
    recorded: int
    """When it began to record."""
    end: int
    """When the last thing of it ended."""
    spans: list[SpanEnded]
    requests: list[RequestEnded]


def nested(intervals: Iterable[IntervalT]) -> Iterator[tuple[IntervalT, Sequence[IntervalT]]]:
    """Each interval in order, with those around it, outermost first. As many as are around one: so deep it is drawn,
    and nothing else is in its place then, even if they do not nest."""
    around: list[IntervalT] = []
    for each in sorted(intervals, key=lambda each: (each.start, -each.end)):
        while around and around[-1].end <= each.start:
            around.pop()
        yield each, tuple(around)
        around.append(each)


def placement(request: RequestEnded) -> Placement | None:
    """Where the server's work on a request lies; None where nothing is known of it."""
    spans = sorted(request.server, key=lambda each: (each.start, -each.end))
    if not spans and request.in_server:
        spans = [ServerSpan(Part.SERVER, "", 0, request.in_server)]
    if not spans:
        return None
    worked = max(each.end for each in spans)
    answered = request.answered or request.end
    # What it does after the reply, for a body, ends before the body does.
    latest = (answered if worked <= answered - request.start else request.end) - worked
    slack = max(0, latest - request.start) // 2
    start = request.start + slack
    placed = [ServerSpan(each.part, each.name, start + each.start, start + each.end) for each in spans]
    return Placement(start, slack, placed)


def process_tracks(trace: Trace) -> list[ProcessTrack]:
    """The processes of a trace, in the order in which they began."""
    found: dict[int, ProcessBegan] = {}
    for each in sorted(trace.processes, key=lambda each: each.began):
        found.setdefault(each.process, each)
    return [_track(trace, each) for each in found.values()]


def _track(trace: Trace, began: ProcessBegan) -> ProcessTrack:
    process = began.process
    spans = [each for each in trace.spans if each.process == process]
    requests = [each for each in trace.requests if each.process == process]
    # The system tells the start within 10 ms, which may be before that of the command that started it.
    start = began.began if began.started is None else min(began.began, max(began.started, trace.start))
    ends = [each.at for each in trace.ends if each.process == process]
    end = max([began.began, *ends, *(each.end for each in spans), *(each.end for each in requests)])
    return ProcessTrack(process, began.program, start, began.began, end, spans, requests)
