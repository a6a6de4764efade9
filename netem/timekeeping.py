"""A test of this machine's timers: a thread sleeps again and again for a short time, and measures how late it wakes.

It is a thread of this process, like the proxy's thread, so both are late for the same reasons.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

PAUSE = 0.005
"""Seconds of each sleep: short compared with any measured RTT, and long enough to use only 0.1 % of a processor."""


def percentile_99(numbers: Iterable[float]) -> float:
    """Return the 99th percentile of some numbers (by nearest rank); 0 if there are none."""
    ordered = sorted(numbers)
    return ordered[-(-len(ordered) * 99 // 100) - 1] if ordered else 0.0


def wakings(
    running: Callable[[], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[float]:
    """Sleep again and again while `running()`. Return the seconds by which each waking was late."""
    late = []
    while running():
        due = clock() + PAUSE
        sleep(PAUSE)
        late.append(clock() - due)
    return late


class Timekeeping:
    """A context manager that tests the timers while it is entered: `with Timekeeping() as kept: ...`."""

    def __init__(self) -> None:
        self.p99 = 0.0
        """The 99th percentile of the lateness of wakings, in seconds; set when the context is left."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netem timekeeping", daemon=True)

    def _run(self) -> None:
        self.p99 = percentile_99(wakings(lambda: not self._stopped.is_set()))

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the thread. This takes at most one of its sleeps."""
        self._stopped.set()
        self._thread.join()
