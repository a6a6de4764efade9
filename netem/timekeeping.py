"""Whether this machine keeps time: how late a thread wakes that sleeps for short times, again and again.

It is a thread of this process, as the proxy's is: what makes it late makes the proxy late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from netem.lateness import quantile

PAUSE = 0.005
"""Seconds of each sleep: short beside any RTT that is measured, and one part in a thousand of a processor."""


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
        self.late = 0.0
        """By how many seconds the latest waking was late; known when it is left."""
        self.p99 = 0.0
        """By how many seconds 99 of 100 were late at the most."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netem timekeeping", daemon=True)

    def _run(self) -> None:
        late = sorted(wakings(lambda: not self._stopped.is_set()))
        if late:
            self.late, self.p99 = late[-1], quantile(late, 99)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End, within one sleep."""
        self._stopped.set()
        self._thread.join()
