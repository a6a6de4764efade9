"""The executors that run the store's work: threads under Twisted, at once in the simulator."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, TypeVar

from smartserver.server.fair import Tenant

T = TypeVar("T")

NOBODY = Tenant()
"""The server itself."""


class Lane(enum.Enum):
    """The queues of work, apart so that slow work holds up nothing that is quick."""

    QUICK = "quick"
    """Reads: they wait for the disk alone."""
    CONTENT = "content"
    """Bodies that are put together, and requests of many calls: a tree or a log takes the processor, all trees of a
    history for minutes."""
    BODY = "body"
    """The checking of bodies as they come: it waits for the disk, and where it is large for that of another."""
    COMMIT = "commit"
    """Changes: they wait for the disk to sync, and for other writers."""
    HOOK = "hook"
    """Changes of repositories with hooks: they wait for commands of others, each as long as it may."""
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
        """True when it begins no more and waits for the work that runs, which makes haste."""

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        """Call `work` somewhere, then `done` with what it gave. `work` raises nothing. `client`: whose work it is."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call this on the thread that moves the bytes; usable from any thread."""


class InlineExecutor:
    """Runs everything at once, in the caller's thread: for the simulator."""

    stopping = False

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        """Do it now."""
        done(work())

    def soon(self, call: Callable[[], None]) -> None:
        """Do it now."""
        call()
