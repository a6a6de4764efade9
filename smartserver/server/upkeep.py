"""Upkeep after an answer. However many pushes a repository gets meanwhile, at most one tidying of it waits.

One thread tidies all repositories, at a slow pace. While it is at a large one, another that is pushed to once a second
would get very many packs. So the pace is left once a repository waits for too long. A change may have
brought a pack, so `AHEAD` is of both.
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


class UpkeepQueue:
    """Repositories that were changed since they were tidied; usable from several threads.

    They are told apart by their paths: a site forgets a repository that was not asked for in a while, and opens it
    again.
    """

    def __init__(self) -> None:
        self._changes: dict[str, int] = {}
        self._pressing = 0
        self._guard = threading.Lock()

    @property
    def is_pressing(self) -> bool:
        """True if a repository got so many packs meanwhile that it would wait for no more."""
        return self._pressing > 0

    def add(self, repository: PackRepository) -> bool:
        """Note a change of a repository; whether it did not wait before."""
        with self._guard:
            changes = self._changes[repository.path] = self._changes.get(repository.path, 0) + 1
            self._pressing += changes == AHEAD
            return changes == 1

    def take(self, repository: PackRepository) -> None:
        """It waits no longer."""
        with self._guard:
            self._pressing -= self._changes.pop(repository.path) >= AHEAD

    def tidy_later(self, executor: Executor, repository: PackRepository, *, joins: bool = True) -> None:
        """Have a repository that was changed tidied, unless that is to come anyway. `joins`: its packs too, not its log
        alone.

        It goes at a slow pace until another waits for too long, or the server stops.
        """

        def begin() -> None:
            # Before it looks, so that what changes from now on asks again.
            self.take(repository)
            if joins:
                tidy(repository, partial(repository.tidy, SlowPace(lambda: executor.stopping or self.is_pressing)))
            else:
                tidy(repository, repository.save_log)

        if self.add(repository):
            executor.run(begin, lambda _: None, Lane.UPKEEP)


def tidy(repository: PackRepository, work: Callable[[], None]) -> None:
    """Tidy a repository after an answer; what goes wrong there is nobody's answer."""
    try:
        work()
    except Exception as error:  # It runs in a thread whose errors nobody sees.
        log.warning("tidying %s: %s", repository.path, error, exc_info=not isinstance(error, CodedError))
