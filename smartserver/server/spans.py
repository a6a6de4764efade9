"""`RequestSpans`: the spans of the server's time for one request, if its client or a log needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from smartserver.spans import Part
from smartserver.wire.limits import MAX_SPANS
from smartserver.wire.messages import ServerSpan

ADJACENT = 50
"""The most microseconds between two spans of the same work that are joined, as long as there are few spans."""

COARSER = 4
"""The factor by which the gap grows each time that there are too many spans."""

RESERVED = 64
"""The number of spans that are kept free for the commit, which follows a long body."""

SHOWN, LEAST = 8, 1000
"""The most spans that the log of slow requests names, and the least microseconds of each."""


@dataclass(slots=True)
class _Span:
    part: Part
    name: str
    depth: int
    start: int
    end: int


class RequestSpans:
    """The spans of one request; implements `spans.Listener`.

    A long body has thousands of spans. Spans of the same work are joined even if other spans are between them, so that
    no work is left out.
    """

    def __init__(self, clock: Callable[[], float], *, tells: bool) -> None:
        """Times count from now. `tells`: True to send the spans to the client."""
        self.tells = tells
        self.clock = clock
        self._began = clock()
        self._open: list[tuple[Part, str, int]] = []
        self._spans: list[_Span] = []
        self._adjacent = ADJACENT
        self._lasted: dict[str, int] = {}
        """The total microseconds of spans, by name."""

    def began(self, part: Part, name: str) -> None:
        """Record the beginning of a span."""
        self._open.append((part, name, self._micro(self.clock())))

    def ended(self) -> None:
        """Record the end of the most recent open span."""
        part, name, start = self._open.pop()
        self._add(part, name, start, self._micro(self.clock()))

    def measured(self, connection: object) -> None:
        """Do nothing, because a request has no connection of its own."""

    def waited(self, since: float) -> None:
        """Record that the request waited for a thread from `since` until now."""
        self._add(Part.QUEUED, "", self._micro(since), self._micro(self.clock()))

    def take(self) -> list[ServerSpan]:
        """Return the spans that were not returned yet, at most `MAX_SPANS`. An open span is cut now, and its rest
        becomes another span."""
        now = self._micro(self.clock())
        begun = list(self._open)
        while self._open:
            part, name, start = self._open.pop()
            self._add(part, name, start, now)
        self._open = [(part, name, now) for part, name, _ in begun]
        taken, self._spans = self._spans, []
        return [ServerSpan(each.part, each.name, each.start, each.end) for each in taken]

    @property
    def longest(self) -> list[str]:
        """The names with the longest total times, inner spans included, as `name:milliseconds`."""
        lasted = Counter(self._lasted.copy())  # Another thread may add a span meanwhile.
        return [f"{name}:{micro / 1000:.1f}" for name, micro in lasted.most_common(SHOWN) if micro >= LEAST]

    def _add(self, part: Part, name: str, start: int, end: int) -> None:
        called = name or part
        self._lasted[called] = self._lasted.get(called, 0) + end - start
        self._spans.append(_Span(part, name, len(self._open), start, end))
        if len(self._spans) > 1:
            self._spans[-2:] = self._joined(self._spans[-2:])
        while len(self._spans) > MAX_SPANS - RESERVED:
            self._adjacent *= COARSER
            self._spans = self._joined(self._spans)

    def _joined(self, spans: list[_Span]) -> list[_Span]:
        """Return the spans. Spans of the same work are joined if they are close in time."""
        found: list[_Span] = []
        last: dict[tuple[Part, str, int], _Span] = {}
        for span in spans:
            key = (span.part, span.name, span.depth)
            before = last.get(key)
            gap = 0 if before is None else span.start - before.end
            if before is not None and 0 <= gap <= self._adjacent:
                # A larger gap is not counted: the total length stays right, the places of later spans do not.
                before.end += span.end - span.start + (gap if gap <= ADJACENT else 0)
            else:
                last[key] = span
                found.append(span)
        return found

    def _micro(self, now: float) -> int:
        return max(0, round((now - self._began) * 1e6))
