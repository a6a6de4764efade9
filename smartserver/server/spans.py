"""`RequestSpans`: what the server spends the time of one request on, where its client or a log asks for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from smartserver.spans import Part
from smartserver.wire.limits import MAX_SPANS
from smartserver.wire.messages import ServerSpan

ADJACENT = 50
"""Microseconds between two spans of the same that count as one, as long as there are few."""

COARSER = 4
"""Times as many, each time that there are too many."""

RESERVED = 64
"""Spans that are left for what follows a long body: the commit."""

SHOWN, LEAST = 8, 1000
"""Spans that a log names, and the least microseconds of one."""


@dataclass(slots=True)
class _Span:
    part: Part
    name: str
    depth: int
    start: int
    end: int


class RequestSpans:
    """The spans of a request; implements `spans.Listener`. Nothing of another request is in them.

    A long body is thousands of spans: those of the same are joined across what is between them, so that none is left
    out.
    """

    def __init__(self, clock: Callable[[], float], *, tells: bool) -> None:
        """They count from now on. `tells`: the client gets them."""
        self.tells = tells
        self.clock = clock
        self._began = clock()
        self._open: list[tuple[Part, str, int]] = []
        self._spans: list[_Span] = []
        self._adjacent = ADJACENT
        self._lasted: dict[str, int] = {}
        """Microseconds by name."""

    def began(self, part: Part, name: str) -> None:
        """A span begins."""
        self._open.append((part, name, self._micro(self.clock())))

    def ended(self) -> None:
        """The last one ends."""
        part, name, start = self._open.pop()
        self._add(part, name, start, self._micro(self.clock()))

    def measured(self, connection: object) -> None:
        """Nothing: a request has no connection of its own."""

    def waited(self, since: float) -> None:
        """The request waited for a thread."""
        self._add(Part.QUEUED, "", self._micro(since), self._micro(self.clock()))

    def take(self) -> list[ServerSpan]:
        """The spans that were not taken yet, `MAX_SPANS` at most. One that has not ended is told so far; the rest of it
        is another."""
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
        """The longest of all, each with those inside of it, as `name:milliseconds`."""
        lasted = Counter(self._lasted.copy())  # Another thread may add one meanwhile.
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
        """The same with fewer spans, if some of the same are near each other."""
        found: list[_Span] = []
        last: dict[tuple[Part, str, int], _Span] = {}
        for span in spans:
            key = (span.part, span.name, span.depth)
            before = last.get(key)
            gap = 0 if before is None else span.start - before.end
            if before is not None and 0 <= gap <= self._adjacent:
                # A gap is no part of the work: the length of the whole is right, the place of what comes later is not.
                before.end += span.end - span.start + (gap if gap <= ADJACENT else 0)
            else:
                last[key] = span
                found.append(span)
        return found

    def _micro(self, now: float) -> int:
        return max(0, round((now - self._began) * 1e6))
