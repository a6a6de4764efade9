"""Whether this machine keeps time: how late a thread wakes that sleeps for short times beside the work.

It is a thread of this process, as the proxy's is: what makes it late makes the proxy late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

PAUSE = 0.005
"""Seconds of each sleep: short beside any RTT that is measured, and one part in a thousand of a processor."""


def latest(
    running: Callable[[], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> float:
    """Sleep again and again while `running`; by how many seconds the latest waking was late."""
    greatest = 0.0
    while running():
        due = clock() + PAUSE
        sleep(PAUSE)
        greatest = max(greatest, clock() - due)
    return greatest


class Timekeeping:
    """Looks while it is entered: `with Timekeeping() as kept: ...`."""

    def __init__(self) -> None:
        self.late = 0.0
        """By how many seconds the latest waking was late; known when it is left."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="netem timekeeping", daemon=True)

    def _run(self) -> None:
        self.late = latest(lambda: not self._stopped.is_set())

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End, within one sleep."""
        self._stopped.set()
        self._thread.join()
