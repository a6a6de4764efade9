"""`Turns`: leaves other processes time to publish their records between those of this one.

Processes race to publish the next record. The winner of the last one would mostly win again: it knows the state, which
the others have to read first. Over a slow store a process could then be late for as long as another has changes to
make. So a process that was late in the last minute waits after each of its records, for as long as it needed itself to
read what others had done and to try again. Nothing depends on it: a record is created exclusively.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REMEMBERED = 60.0
"""Seconds for which a process that was late supposes that others are writing too."""
LONGEST = 1.0
"""Seconds of a wait at most: a large change that is judged again is no measure for the others."""


class Turns:
    """The turns of one process at the log of one repository; `wait` is called by one thread at a time."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> None:
        """`clock`: seconds that only rise."""
        self._clock = clock
        self._sleep = sleep
        self._retried_at: float | None = None
        self._needed = 0.0
        self._published_at = 0.0

    def retried(self, seconds: float) -> None:
        """A record is published again, that long after another was first."""
        self._retried_at, self._needed = self._clock(), min(seconds, LONGEST)

    def published(self) -> None:
        """A record of this process was published."""
        self._published_at = self._clock()

    def wait(self) -> bool:
        """Wait until it is this process's turn again. Whether it had to: others may have published since."""
        now = self._clock()
        left = self._published_at + self._needed - now
        if self._retried_at is None or now - self._retried_at > REMEMBERED or left <= 0:
            return False
        self._sleep(left)
        return True
