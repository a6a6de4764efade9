"""`RequestSpans`: what the server spends the time of one request on, where its client asks for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from smartserver.spans import Part
from smartserver.wire.limits import MAX_SPANS
from smartserver.wire.messages import ServerSpan

ADJACENT = 50
"""Microseconds between two spans of the same that count as one."""


SHOWN, LEAST = 8, 1000
"""Spans that a log names, and the least microseconds of one."""


class RequestSpans:
    """The spans of a request; implements `spans.Listener`. Nothing of another request is in them."""

    def __init__(self, clock: Callable[[], float], *, tells: bool) -> None:
        """They count from now on. `tells`: the client gets them."""
        self.tells = tells
        self.clock = clock
        self._lasted: Counter[str] = Counter()
        """Microseconds by name."""
        self._began = clock()
        self._open: list[tuple[Part, str, int]] = []
        self._spans: list[ServerSpan] = []

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
        """Those that were not taken yet, `MAX_SPANS` at most. One that has not ended is told so far; the rest of it is
        another."""
        if not self.tells:
            return []
        now = self._micro(self.clock())
        for part, name, start in reversed(self._open):
            self._add(part, name, start, now)
        self._open = [(part, name, now) for part, name, _ in self._open]
        taken, self._spans = self._spans, []
        return taken

    @property
    def longest(self) -> list[str]:
        """The longest of all, each with those inside of it, as `name:milliseconds`."""
        return [f"{name}:{micro / 1000:.1f}" for name, micro in self._lasted.most_common(SHOWN) if micro >= LEAST]

    def _add(self, part: Part, name: str, start: int, end: int) -> None:
        self._lasted[name or part] += end - start
        last = self._spans[-1] if self._spans else None
        if last is not None and (last.part, last.name) == (part, name) and 0 <= start - last.end <= ADJACENT:
            self._spans[-1] = ServerSpan(part, name, last.start, end)
        elif len(self._spans) < MAX_SPANS:
            self._spans.append(ServerSpan(part, name, start, end))

    def _micro(self, now: float) -> int:
        return max(0, round((now - self._began) * 1e6))
