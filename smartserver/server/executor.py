"""Where the store's work runs: threads under Twisted, at once in the simulator; and one step after another."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from smartserver.server.fair import Client

T = TypeVar("T")

NOBODY = Client()
"""The server itself."""


class Lane(enum.Enum):
    """Where work runs, so that what may wait for long holds up nothing that does not."""

    QUICK = "quick"
    """Reads: they wait for the disk alone."""
    CONTENT = "content"
    """Bodies that are put together, and requests of many calls: a tree or a log takes the processor, all trees of a
    history for minutes."""
    BODY = "body"
    """The checking of bodies as they come: it waits for the disk, and where it is large for that of another."""
    COMMIT = "commit"
    """Changes: they wait for the disk to sync, and for other writers."""
    LONG = "long"
    """Verification, for any reader as often as he asks."""
    UPKEEP = "upkeep"
    """Repacking and the deletion of leftovers, which no number of readers may keep out: without it pushes come to an
    end."""


class Executor(Protocol):
    """Runs work that blocks and reports back on the thread that moves the bytes."""

    stopping: bool
    """Whether it begins no more and waits for what runs: that makes haste."""

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Client = NOBODY
    ) -> None:
        """Call `work` somewhere, then `done` with what it gave. `work` raises nothing. `client`: whose work it is."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call this on the thread that moves the bytes; usable from any thread."""


class InlineExecutor:
    """Runs everything at once, in the caller's thread: for the simulator."""

    stopping = False

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Client = NOBODY
    ) -> None:
        """Do it now."""
        done(work())

    def soon(self, call: Callable[[], None]) -> None:
        """Do it now."""
        call()


class Strand:
    """Steps of one request, in order and never two at once, on any executor."""

    def __init__(self, executor: Executor, client: Client = NOBODY, rests: Callable[[], None] = lambda: None) -> None:
        """`client`: whose request it is. `rests` is called each time no step is left."""
        self._executor = executor
        self._client = client
        self._rests = rests
        self._steps: deque[Callable[[], None]] = deque()
        self._busy = False
        self._draining = False

    @property
    def idle(self) -> bool:
        """Whether no step runs or waits."""
        return not self._busy and not self._steps

    def submit(self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK) -> None:
        """Run a step after those before it."""

        def start() -> None:
            def finished(result: T) -> None:
                self._busy = False
                done(result)
                self._drain()

            self._executor.run(work, finished, lane, self._client)

        self._steps.append(start)
        self._drain()

    def clear(self) -> None:
        """Forget the steps that were not begun."""
        self._steps.clear()

    def _drain(self) -> None:
        # An executor may finish a step before `run` returns; the loop keeps that from becoming recursion.
        if self._draining:
            return
        self._draining = True
        try:
            while self._steps and not self._busy:
                self._busy = True
                self._steps.popleft()()
        finally:
            self._draining = False
        if self.idle:
            self._rests()
