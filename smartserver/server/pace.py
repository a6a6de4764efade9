"""The pace of work that nobody waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE = 0.0003
"""Seconds of work after which it rests."""
REST = 2
"""Seconds of rest for each second of work."""


class SlowPace:
    """Rests twice as long as it worked: who asks meanwhile has the interpreter two thirds of the time.

    Two threads that compute share one interpreter, and in turn: beside one that never rests a push takes twice as long.
    One that rests longer falls behind: pushes one after the other then made 23 packs before they were joined.
    """

    def __init__(
        self,
        hurried: Callable[[], bool],
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`hurried`: whether somebody waits, so that it does not rest. `clock`: seconds this thread has computed."""
        self._hurried = hurried
        self._clock = clock
        self._sleep = sleep
        self._since = clock()

    def __call__(self) -> None:
        """Rest, if it is time to."""
        worked = self._clock() - self._since
        if worked >= SLICE:
            if not self._hurried():
                self._sleep(REST * worked)
            self._since = self._clock()
