"""Which repositories wait to be tidied, and whether one of them waits for too long.

They are told apart by their paths: a site forgets a repository that was not asked for in a while, and opens it anew.
"""

from __future__ import annotations

import threading

from smartserver.store.repository import PackRepository

AHEAD = 4
"""Changes, each of which may have brought a pack, for which a repository waits while packs are joined at a slow pace.

That takes three times as long as without rests, and there is one thread for all repositories: 17,000 records took 0.1 s
and 0.4 to 1.1 s, ten million would take ten minutes, in which another that is pushed to once a second would get as many
packs as a root can name.
"""


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
