"""The virtual clock: time passes only when a caller runs the clock, and jumps to the next event.

Events at the same time run in the order of their creation, so that each run is the same. Time is kept in whole
nanoseconds: ten round trips of 0.1 s are exactly one second.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from netem.units import NANOSECONDS, nanoseconds


class Timer:
    """One future event, which `cancel` removes."""

    __slots__ = ("at", "call")

    def __init__(self, at: int, call: Callable[[], object]) -> None:
        self.at = at
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Remove the event. After it has run, this does nothing."""
        self.call = None


class Clock:
    """A clock of virtual time, which starts at 0."""

    def __init__(self) -> None:
        self.nanoseconds = 0
        """The present time in nanoseconds, which only the clock sets."""
        self._events: list[tuple[int, int, Timer]] = []
        self._count = 0

    @property
    def now(self) -> float:
        """The present time in seconds."""
        return self.nanoseconds / NANOSECONDS

    def call_later(self, delay: float, call: Callable[[], object]) -> Timer:
        """Schedule `call` after `delay` seconds."""
        return self.call_at(self.nanoseconds + nanoseconds(delay), call)

    def call_at(self, at: int, call: Callable[[], object]) -> Timer:
        """Schedule `call` for the time `at` in nanoseconds."""
        if at < self.nanoseconds:
            raise ValueError(f"cannot call at {at} ns, it is {self.nanoseconds} ns")
        timer = Timer(at, call)
        heapq.heappush(self._events, (at, self._count, timer))
        self._count += 1
        return timer

    def step(self, until: int | None = None) -> bool:
        """Jump to the next event and run it, unless it is later than `until` (ns). Return True if an event was run."""
        while self._events:
            at, _, timer = self._events[0]
            if timer.call is not None and until is not None and at > until:
                return False
            heapq.heappop(self._events)
            call = timer.call
            if call is not None:
                timer.call = None
                self.nanoseconds = max(self.nanoseconds, at)
                call()
                return True
        return False

    def run_until(self, met: Callable[[], object], timeout: float | None = None) -> bool:
        """Run events until `met()` is true. Return False if it did not become true.

        With a `timeout`, this means that so many seconds have passed; without a timeout, that no event is left to run.
        """
        end = None if timeout is None else self.nanoseconds + nanoseconds(timeout)
        while not met():
            if not self.step(end):
                if end is not None:
                    self.nanoseconds = max(self.nanoseconds, end)
                return False
        return True

    def run(self) -> None:
        """Run all events, including those that they schedule."""
        while self.step():
            pass

    def sleep(self, delay: float) -> None:
        """Let `delay` seconds pass and run the events in that time."""
        self.run_until(lambda: False, delay)
