"""Where the store's work runs: threads under Twisted, at once in the simulator."""

from __future__ import annotations

import enum
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
    HEALTH = "health"
    """A look whether the store answers: how busy the server is has no part in that."""


class Executor(Protocol):
    """Runs work that blocks and reports back on the thread that moves the bytes."""

    @property
    def stopping(self) -> bool:
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
