"""Upkeep after an answer. At most one tidying of a repository waits, however many pushes it gets meanwhile.

One thread tidies all repositories, at a slow pace. While it tidies a large one, another that is pushed to once a second
would get very many packs. So the thread works at full speed once a repository has had `AHEAD` changes while it waited.
Each change may have added a pack.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from smartserver.server.executor import Executor, Lane
from smartserver.store.repack import AHEAD
from smartserver.store.repository import PackRepository
from transports.errors import CodedError

log = logging.getLogger("smartserver")

SLICE = 0.0003
"""Seconds of work after which the thread rests."""
REST = 2
"""Seconds of rest for each second of work."""


class SlowPace:
    """Rests twice as long as it worked, so that requests have the interpreter two thirds of the time.

    Two computing threads take turns at the interpreter, so a push beside a thread that never rests takes twice as long.
    A thread that rests longer falls behind: successive pushes made 23 packs before they were joined.
    """

    def __init__(
        self,
        hurried: Callable[[], bool],
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`hurried`: returns True while the work must not rest. `clock`: returns the seconds of processor time that
        this thread has used."""
        self._hurried = hurried
        self._clock = clock
        self._sleep = sleep
        self._since = clock()

    def __call__(self) -> None:
        """Rest if `SLICE` seconds of work are over."""
        worked = self._clock() - self._since
        if worked >= SLICE:
            if not self._hurried():
                self._sleep(REST * worked)
            self._since = self._clock()


class UpkeepQueue:
    """Repositories that were changed since they were tidied. Several threads may use it.

    The key is the path, because a site closes a repository that was not used for a while, and opens it again.
    """

    def __init__(self) -> None:
        self._changes: dict[str, int] = {}
        self._pressing = 0
        self._guard = threading.Lock()

    @property
    def is_pressing(self) -> bool:
        """True if a repository got `AHEAD` changes while it waited."""
        return self._pressing > 0

    def add(self, repository: PackRepository) -> bool:
        """Record a change of a repository. Return True if the repository did not wait before."""
        with self._guard:
            changes = self._changes[repository.path] = self._changes.get(repository.path, 0) + 1
            self._pressing += changes == AHEAD
            return changes == 1

    def take(self, repository: PackRepository) -> None:
        """Remove a repository from the waiting ones."""
        with self._guard:
            self._pressing -= self._changes.pop(repository.path) >= AHEAD

    def tidy_later(self, executor: Executor, repository: PackRepository, *, joins: bool = True) -> None:
        """Queue the tidying of a changed repository, unless it is queued already. `joins`: True to join packs too,
        False to tidy the log alone.

        The work has a slow pace until another repository waits for too long, or the server stops.
        """

        def begin() -> None:
            # Before it reads, so that a later change is queued again.
            self.take(repository)
            if joins:
                tidy(repository, partial(repository.tidy, SlowPace(lambda: executor.stopping or self.is_pressing)))
            else:
                tidy(repository, repository.save_log)

        if self.add(repository):
            executor.run(begin, lambda _: None, Lane.UPKEEP)


def tidy(repository: PackRepository, work: Callable[[], None]) -> None:
    """Tidy a repository after an answer. Errors are only logged."""
    try:
        work()
    except Exception as error:  # Nobody sees errors of this thread.
        log.warning("tidying %s: %s", repository.path, error, exc_info=not isinstance(error, CodedError))
