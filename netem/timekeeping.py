"""A test of this machine's timers: a thread sleeps for short times, again and again, and notes how late it wakes.

It is a thread of this process, as the proxy's is: what makes it late makes the proxy late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

PAUSE = 0.005
"""Seconds of each sleep: short beside any RTT that is measured, and one part in a thousand of a processor."""


def percentile_99(numbers: Iterable[float]) -> float:
    """The least of some numbers that 99 in 100 of them do not exceed (by nearest rank); of none 0."""
    ordered = sorted(numbers)
    return ordered[-(-len(ordered) * 99 // 100) - 1] if ordered else 0.0


def wakings(
    running: Callable[[], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[float]:
    """Sleep again and again while `running`; by how many seconds each waking was late."""
    late = []
    while running():
        due = clock() + PAUSE
        sleep(PAUSE)
        late.append(clock() - due)
    return late


class Timekeeping:
    """Looks while it is entered: `with Timekeeping() as kept: ...`."""

    def __init__(self) -> None:
        self.p99 = 0.0
        """By how many seconds 99 in 100 wakings were late at the most; known when it is left."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netem timekeeping", daemon=True)

    def _run(self) -> None:
        self.p99 = percentile_99(wakings(lambda: not self._stopped.is_set()))

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End, within one sleep."""
        self._stopped.set()
        self._thread.join()
