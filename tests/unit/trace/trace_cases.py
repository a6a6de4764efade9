"""Traces of a few events, as their readers' tests need them."""

from __future__ import annotations

from smartserver.trace.events import (
    CommandEnded,
    Event,
    FindingMade,
    ProcessBegan,
    ProcessEnded,
    RequestEnded,
    SpanEnded,
    encode,
)
from smartserver.trace.wait import Trace, traces

TRACE = "0" * 32
PROCESS = 7


def trace_of(*events: Event, end: int = 1_000_000, trips: int = 1) -> Trace:
    """One command from 0 to `end` microseconds; its process recorded all the time but for 10,000 of each end."""
    began = ProcessBegan(process=PROCESS, version=1, program="ours", trace=TRACE, began=10_000, started=0)
    ended = ProcessEnded(process=PROCESS, at=end - 10_000, round_trips=trips, connections=0, up=0, down=0)
    command = CommandEnded(process=6, program="git", trace=TRACE, start=0, end=end, status=0)
    (found,) = traces(map(encode, [began, *events, ended, command]))
    return found


def request(
    start: int, end: int, verb: str = "Repository.pull", *, up: int = 100, down: int = 100, in_server: int = 0
) -> RequestEnded:
    """A request that is answered at its end."""
    return RequestEnded(PROCESS, [verb], "p", start, end, "ok", answered=end, up=up, down=down, in_server=in_server)


def span(part: str, start: int, end: int, name: str = "") -> SpanEnded:
    """A span."""
    return SpanEnded(PROCESS, part, start, end, name)


def finding(behaviour: str, *requests: int, cost: str = "request", where: str = "a.py:1 in f", share: float = 1.0,
            verb: str = "Repository.pull") -> FindingMade:  # fmt: skip
    """A finding about the requests that started then."""
    return FindingMade(PROCESS, behaviour, verb, "it is so", cost, list(requests), where, share)
