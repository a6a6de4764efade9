"""Which repositories wait to be tidied, and whether one of them waits for too long.

One thread tidies them all, at a slow pace: while it is at a large one, another that is pushed to once a second would
get as many packs as a root can name. A change may have brought a pack, so `AHEAD` is of both.

They are told apart by their paths: a site forgets a repository that was not asked for in a while, and opens it anew.
"""

from __future__ import annotations

import threading

from smartserver.store.repack import AHEAD
from smartserver.store.repository import PackRepository


class Due:
    """Repositories that were changed since they were tidied; usable from several threads."""

    def __init__(self) -> None:
        self._changes: dict[str, int] = {}
        self._pressing = 0
        self._guard = threading.Lock()

    @property
    def pressing(self) -> bool:
        """Whether one got so many packs meanwhile that it would wait for no more."""
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
