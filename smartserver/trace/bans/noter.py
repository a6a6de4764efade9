"""`Noter`: the watcher that records the findings of bans and raises nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from smartserver.trace.bans.model import Ban, Finding, WatchedRequest
from smartserver.trace.bans.operations import call_site
from smartserver.trace.bans.watcher import Watcher


class Note(NamedTuple):
    """A finding of a ban; `where`: the lines that made the call, the innermost first."""

    behaviour: str
    finding: Finding
    where: str
    requests: tuple[int, ...]
    """The numbers of the requests that were needless, wholly or in part."""


class Noter(Watcher):
    """Records at most one finding for a request. All requests of a client count as one operation, the one of its
    command."""

    def __init__(self, bans: Sequence[Ban], found: Callable[[Note], None]) -> None:
        """`found` is called with each note."""
        super().__init__(bans)
        self._note = found
        self._noted: set[int] = set()

    def same_operation(self) -> None:
        """Do nothing: all requests are one operation."""

    def judge(self, ban: Ban, found: Finding | None, asked: WatchedRequest) -> None:
        """Record a finding, unless one was recorded for this request."""
        if found is not None and asked.number not in self._noted:
            self._noted.add(asked.number)
            self._note(Note(ban.name, found, call_site(), found.requests or (asked.number,)))

    regret = judge
