"""`Turns`: leaves others time to publish their records between those of this process.

Who publishes the next record is a race, and the winner of the last one would mostly win it again: it knows the state,
which the others have to read first. Over a slow store a process could then be late for as long as another has changes
to make. So one that was late in the last minute rests after each of its records, for as long as it needed itself to
read what others had done and to try again. Nothing depends on it: that a record is created exclusively decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REMEMBERED = 60.0
"""Seconds for which a process that was late supposes that others are writing too."""
LONGEST = 1.0
"""Seconds of a rest at most: what was large to judge again is no measure for the others."""


class Turns:
    """The turns of one process at the log of one repository; `rest` is called by one thread at a time."""

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> None:
        """`clock`: seconds that only rise."""
        self._clock = clock
        self._sleep = sleep
        self._lost: float | None = None
        """When another was first with the record that is being published."""
        self._late: float | None = None
        """When a record was last published again because another was first."""
        self._needed = 0.0
        """Seconds from then, when another was first, to the next try."""
        self._won = 0.0

    def lost(self) -> None:
        """Another was first, or may have been."""
        self._lost = self._clock()

    def tries(self) -> None:
        """A record is about to be published."""
        if self._lost is not None:
            self._late = self._clock()
            self._needed, self._lost = min(self._late - self._lost, LONGEST), None

    def won(self) -> None:
        """The record was published."""
        self._won = self._clock()

    def rest(self) -> bool:
        """Wait until it is this process's turn again; whether it had to, and others may have published since."""
        now = self._clock()
        left = self._won + self._needed - now
        if self._late is None or now - self._late > REMEMBERED or left <= 0:
            return False
        self._sleep(left)
        return True
