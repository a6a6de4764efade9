"""Executors run the blocking work on the store: in threads under Twisted (`threads`), at once in the simulator."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, TypeVar

from smartserver.server.fair import Tenant

T = TypeVar("T")

NOBODY = Tenant()
"""The tenant for work of the server itself."""


class Lane(enum.Enum):
    """The queues of work. They are separate so that slow work does not delay quick work."""

    QUICK = "quick"
    """Reads, which wait only for the disk."""
    CONTENT = "content"
    """Bodies that are built for a request, and requests with many calls. A tree or a log takes processor time; all
    trees of a history take minutes."""
    BODY = "body"
    """Checks of bodies as they arrive. A check waits for the disk; the checks of large bodies also wait for each
    other."""
    COMMIT = "commit"
    """Changes, which wait for syncs of the disk and for other writers."""
    HOOK = "hook"
    """Changes of repositories with hooks, which wait for each hook's command up to its time limit."""
    LONG = "long"
    """Calls that may take minutes, such as a verification, which any reader may request at any time."""
    UPKEEP = "upkeep"
    """Repacking and the deletion of leftovers. Readers must not delay this work: without it, pushes stop."""
    HEALTH = "health"
    """Checks that the store answers, however busy the server is."""


class Executor(Protocol):
    """Runs blocking work, and passes each result to the I/O thread, which reads and writes all connections."""

    @property
    def stopping(self) -> bool:
        """True once no more work is begun. Work that still runs should end soon."""

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        """Call `work` in any thread, then `done` with its result. `work` must not raise. `client`: the connection that
        the work is for."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` on the I/O thread. Any thread may use this."""


class InlineExecutor:
    """Runs everything at once, in the caller's thread. The simulator uses it."""

    stopping = False

    def run(
        self, work: Callable[[], T], done: Callable[[T], None], lane: Lane = Lane.QUICK, client: Tenant = NOBODY
    ) -> None:
        """Call `work` and `done` at once."""
        done(work())

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` at once."""
        call()
