"""Divides a user's wait into parts: every microsecond of a trace is counted once.

An instant belongs to the span that began last of those that cover it. The spans of a process nest, so this is the
innermost one. If spans of two processes cover the instant, this is usually the one of the process that the other
started. Time that no span covers is `unnamed`.

While a request waits for the link, its server works. The server has its own clock, and the times of the way up and the
way down cannot be distinguished. So its spans are placed in the middle, and may be earlier or later by `Placed.within`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from smartserver.spans import Part
from smartserver.trace.events import (
    VERSION,
    CommandEnded,
    Event,
    FindingMade,
    LinkMeasured,
    ProcessBegan,
    ProcessEnded,
    RequestEnded,
    SpanEnded,
    decode,
)

UNNAMED = "unnamed"

WORK = (Part.SERVER, Part.DISK)
"""The parts in which a server works; in its other parts it waits."""


class BadTrace(Exception):
    """A file has no trace, or one of a later release."""


@dataclass
class Trace:
    """The lines of one command's trace, by their kinds."""

    processes: list[ProcessBegan] = field(default_factory=list)
    spans: list[SpanEnded] = field(default_factory=list)
    requests: list[RequestEnded] = field(default_factory=list)
    findings: list[FindingMade] = field(default_factory=list)
    ends: list[ProcessEnded] = field(default_factory=list)
    links: list[LinkMeasured] = field(default_factory=list)
    command: CommandEnded | None = None

    def add(self, event: Event) -> None:
        """Add an event."""
        match event:
            case ProcessBegan():
                self.processes.append(event)
            case SpanEnded():
                self.spans.append(event)
            case RequestEnded():
                self.requests.append(event)
            case FindingMade():
                self.findings.append(event)
            case LinkMeasured():
                self.links.append(event)
            case ProcessEnded():
                self.ends.append(event)
            case CommandEnded():
                self.command = event

    @property
    def start(self) -> int:
        """The time at which the wait began: the start of the command if recorded, else of the earliest process."""
        if self.command is not None:
            return self.command.start
        return min(process.began if process.started is None else process.started for process in self.processes)

    @property
    def end(self) -> int:
        """The time at which the wait ended; without the command, the end of the last recorded event."""
        if self.command is not None:
            return self.command.end
        ends = [end.at for end in self.ends]
        ends += [*[span.end for span in self.spans], *[request.end for request in self.requests]]
        return max(ends, default=self.start)

    @property
    def program(self) -> str:
        """The program that ran."""
        return self.command.program if self.command is not None else self.processes[0].program


class Piece(NamedTuple):
    """A period of the wait that belongs to one part."""

    start: int
    end: int
    part: str
    name: str
    is_remote: bool = False
    """True if a server or a started process did this while the client waited."""


def traces(lines: Iterable[bytes]) -> list[Trace]:
    """Return the commands of a file, in the order in which they began. A line that cannot be decoded is skipped: a
    killed process or a full disk leaves a part of a line.

    Raises:
        BadTrace: the file has no event, or is of a later release.
    """
    why = "it is empty"
    by_id: dict[str, Trace] = {}
    of_process: dict[int, Trace] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            event = decode(line)
        except ValueError as error:
            why = f"line {number} is not an event: {error}"
            continue
        if event is None:
            continue
        if isinstance(event, (ProcessBegan, CommandEnded)):
            found = by_id.setdefault(event.trace, Trace())
            if isinstance(event, ProcessBegan):
                if event.version > VERSION:
                    raise BadTrace(f"its format is {event.version}, and this release reads {VERSION}")
                of_process[event.process] = found
        elif event.process in of_process:
            found = of_process[event.process]
        else:
            why = f"line {number} is of process {event.process}, which has not begun"
            continue
        found.add(event)
    if not by_id:
        raise BadTrace(f"it has no trace: {why}")
    return sorted(by_id.values(), key=lambda each: each.start)


class Placed(NamedTuple):
    """The spans of a server on the client's clock."""

    spans: list[Piece]
    within: int
    """Microseconds by which all spans together may be earlier or later."""


def placed(request: RequestEnded) -> Placed:
    """Shift the spans that a server reported for a request to the client's clock, so that as much of the client's wait
    lies before them as after them. Times are microseconds."""
    spans = [Piece(each.start, each.end, each.part, each.name) for each in request.server]
    if not spans and request.in_server:
        spans = [Piece(0, request.in_server, Part.SERVER, "")]
    answered = request.answered or request.end
    in_reply = [span.end for span in spans if span.end <= answered - request.start]
    unknown = answered - request.start - max(in_reply, default=0)
    at = request.start + unknown // 2
    return Placed([each._replace(start=at + each.start, end=at + each.end) for each in spans], unknown // 2)


def pieces(trace: Trace) -> Iterator[Piece]:
    """Yield the whole wait in order. Each instant belongs to one piece. Unnamed time has no part."""
    served = _remote_work(trace)
    first = 0
    for piece in _swept(trace.start, trace.end, _covers(trace)):
        if piece.part != Part.LINK:
            yield piece
            continue
        while served[first].end <= piece.start:
            first += 1
        for each in itertools.islice(served, first, None):
            if each.start >= piece.end:
                break
            part, name = (each.part, each.name) if each.part else (piece.part, piece.name)
            yield Piece(max(each.start, piece.start), min(each.end, piece.end), part, name, bool(each.part))


def _remote_work(trace: Trace) -> list[Piece]:
    """Return the work of other processes during which this side may wait: the work of servers, and the starts of
    processes for this command."""
    found = [span for request in trace.requests for span in placed(request).spans]
    found += [each for _, each in of_processes(trace) if each.part == Part.START and each.start > trace.start]
    return list(_swept(trace.start, trace.end, found))


def _swept(at: int, end: int, spans: Iterable[Piece]) -> Iterator[Piece]:
    """Yield a period of time in pieces. Each piece belongs to the span that began last among the spans that cover
    it."""
    covers = sorted(span for span in spans if span.start < end and span.end > at)
    active: list[tuple[int, int, str, str]] = []
    bounds = sorted({at, end, *[b for cover in covers for b in (cover.start, cover.end) if at < b < end]})
    index = 0
    for left, right in itertools.pairwise(bounds):
        while index < len(covers) and covers[index].start <= left:
            each = covers[index]
            heapq.heappush(active, (-each.start, each.end, each.part, each.name))
            index += 1
        while active and active[0][1] <= left:
            heapq.heappop(active)
        _, _, part, name = active[0] if active else (0, 0, "", "")
        yield Piece(left, right, part, name)


def _covers(trace: Trace) -> Iterator[Piece]:
    """Yield the pieces that cover the wait: its spans, those of `of_processes`, and the time after the last process."""
    command = trace.command
    yield from (piece for _, piece in of_processes(trace))
    for span in trace.spans:
        yield Piece(span.start, span.end, span.part, span.name)
    if command is not None and trace.ends:
        last = max(end.at for end in trace.ends)
        yield Piece(last, command.end, Part.LOCAL, f"{command.program}, after the last call")


def of_processes(trace: Trace) -> Iterator[tuple[int, Piece]]:
    """Yield pairs of a process id and a piece that no span records: the start of each process and, for a host (`brz`,
    `hg`), its whole run."""
    command = trace.command
    began: set[int] = set()
    for each in sorted(trace.processes, key=lambda each: each.began):
        if each.process not in began:
            first = command is not None and not began
            started = command.start if command is not None and first else each.started
            if started is not None:
                yield each.process, Piece(started, each.began, Part.START, each.program)
            began.add(each.process)
            if each.is_host:
                ended = [end.at for end in trace.ends if end.process == each.process]
                until = max(ended, default=trace.end)
                yield each.process, Piece(each.began, until, Part.LOCAL, f"{each.program} itself")


@dataclass
class Wait:
    """A wait, divided into parts."""

    total: int
    """Microseconds of the wait."""
    parts: Counter[str]
    names: dict[str, Counter[str]]
    """The microseconds of each part, by the names of its spans."""
    overlapped: int
    """Microseconds in which servers worked while this side was busy, too. They are counted in no part."""

    @property
    def unnamed(self) -> int:
        """The microseconds that no span covers."""
        return self.parts[UNNAMED]


def wait(trace: Trace) -> Wait:
    """Add up the parts of a trace's wait."""
    parts: Counter[str] = Counter()
    names: dict[str, Counter[str]] = {}
    overlapped = sum(each.end - each.start for each in _remote_work(trace) if each.part in WORK)
    for piece in pieces(trace):
        part = piece.part or UNNAMED
        length = piece.end - piece.start
        parts[part] += length
        names.setdefault(part, Counter())[piece.name] += length
        overlapped -= length * (piece.is_remote and part in WORK)
    return Wait(trace.end - trace.start, parts, names, overlapped)
