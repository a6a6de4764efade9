"""The newest state of a repository and its files, opened, as a request looks at them.

The newest snapshot is kept for the next request, which takes over what did not change.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from smartserver.errors import NoSuchRepository
from smartserver.store.caches import TextCache
from smartserver.store.log_view import TRIES, Head, LogView, Perform
from smartserver.store.snapshot import Reopen, Snapshot
from smartserver.store.state import State
from transports.errors import NoSuchFile


@dataclass(frozen=True, slots=True)
class RepositoryLook:
    """A look at a repository; `head` is None if none was ever made."""

    head: Head | None

    @property
    def state(self) -> State | None:
        """The state of the repository; a deleted one has none."""
        return self.head.state if self.head is not None and self.head.state.exists else None

    @property
    def exists(self) -> bool:
        """True if there is a repository."""
        return self.state is not None


class OpenedState(NamedTuple):
    """The newest state of a repository, and its packs; None where none was ever made, or there is none."""

    head: Head | None
    snapshot: Snapshot | None


class States:
    """The states of one repository, one after the other; usable from several threads at once."""

    def __init__(self, log: LogView, texts: TextCache) -> None:
        self._log = log
        self._texts = texts
        self._guard = threading.Lock()
        self._latest: Snapshot | None = None
        self._brought: dict[str, bytes] = {}
        """Small files of packs that this process wrote and has not opened."""
        self._again = reader(log, texts, self)

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot that was opened; None where none was."""
        return self._latest

    def forget(self) -> None:
        """Forget the newest snapshot: the next request opens its files again."""
        with self._guard:
            self._latest = None

    def look(self, perform: Perform | None = None) -> RepositoryLook:
        """The repository as it is now. `perform`: as of `Log.look`."""
        try:
            head = self._log.look(perform)
        except NoSuchRepository:
            return RepositoryLook(None)
        if head.damage is not None and not head.state.exists:
            raise head.damage
        return RepositoryLook(head)

    def read(self, look: RepositoryLook | None = None) -> OpenedState:
        """The repository as it is now, or as it was looked at."""
        for tries_left in range(TRIES, 0, -1):
            latest = look or self.look()
            look = None
            try:
                return OpenedState(latest.head, self.open(latest.state))
            except NoSuchFile:
                if tries_left == 1:
                    raise
        raise AssertionError("the last try returns or raises")

    def bring(self, files: Mapping[str, bytes]) -> None:
        """Take files of a pack that a record names now, so that they are not read."""
        with self._guard:
            self._brought = dict(files)

    def open(self, state: State | None) -> Snapshot | None:
        """The snapshot of a state.

        Raises:
            NoSuchFile: a file that it names is gone: look again.
        """
        if state is None or not state.exists:
            return None
        with self._guard:
            latest = self._latest
        if latest is None or latest.state.hash != state.hash:
            latest = Snapshot.open(self._log.folder, state, latest, self._texts, self._again, self._brought)
            with self._guard:
                # Never back to an older one, which a slower thread may have opened.
                kept = self._latest
                if kept is None or kept.state.incarnation != state.incarnation or kept.state.version <= state.version:
                    self._latest = latest
        return latest


def reader(log: LogView, texts: TextCache, states: States | None = None) -> Reopen:
    """Opens the repository as it is now. `states`: their newest snapshot is taken over while they live. A strong
    reference would form a cycle, and keep the files of an unused repository open until the next garbage collection."""
    known = None if states is None else weakref.ref(states)

    def again() -> Snapshot | None:
        living = None if known is None else known()
        return (living or States(log, texts)).read().snapshot

    return again
