"""What a request looks at: the root as it is at that moment, and what it names, opened.

The newest snapshot is kept for the next request, which takes over what did not change. Behind a link what a request
began with is kept for its commit too, which compares it with the root under the lock.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass

from smartserver.errors import NoSuchRepository
from smartserver.store.caches import TextCache
from smartserver.store.document import Root
from smartserver.store.model import RootVersion
from smartserver.store.root import RootView
from smartserver.store.snapshot import Reopen, Snapshot
from smartserver.store.swap import RootFile
from transports.errors import NoSuchFile

ROOT_READS = 4
"""Times the root is read again because a pack it named was gone."""


@dataclass(frozen=True, slots=True)
class State:
    """A root, which may be a tombstone or none at all."""

    root: Root | None
    view: RootView | None
    snapshot: Snapshot | None
    """None where there is no repository."""

    def is_known(self, seen: RootVersion) -> bool:
        """Whether it is the one a client has seen."""
        view = self.view
        return view is not None and seen == RootVersion(
            view.root.incarnation, view.root.version, view.mark(view.root.version)
        )


@dataclass(frozen=True, slots=True)
class LatestRoot:
    """What was seen of a repository: its root, None where there is none."""

    root: Root | None
    now: bool
    """Whether it was read just now, and is not merely what the client knows."""

    @property
    def exists(self) -> bool:
        """Whether there is a repository; a deleted one is none."""
        return self.root is not None and not self.root.deleted


class States:
    """The states of one repository, one after the other; usable from several threads at once."""

    def __init__(self, file: RootFile, texts: TextCache) -> None:
        self._file = file
        self._texts = texts
        self._guard = threading.Lock()
        self._latest: Snapshot | None = None
        self._reusable: State | None = None
        self._again = reader(file, texts, self)

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot that was opened; None where none was."""
        return self._latest

    def look(self, seen: RootVersion | None = None, *, durable: bool = False) -> LatestRoot:
        """The root as it is now. `seen`: what a client knows; where reading is a trip and that was read last, it will
        do for a change, which compares it with what is there under the lock. `durable`: as of `RootFile.read`.

        Raises:
            CorruptFile, Unsupported: it cannot be read.
        """
        reusable = self._reusable
        if seen is not None and reusable is not None and reusable.is_known(seen):
            return LatestRoot(reusable.root, now=False)
        try:
            return LatestRoot(self._file.read(durable=durable), now=True)
        except NoSuchRepository:
            return LatestRoot(None, now=True)

    def read(self, look: LatestRoot | None = None, *, durable: bool = False) -> State:
        """The repository as it is now, or as it was looked at. `durable`: as of `RootFile.read`.

        Raises:
            CorruptFile, Unsupported: its root, or a pack and its index, cannot be read.
        """
        for reads_left in range(ROOT_READS, 0, -1):
            root = (look or self.look(durable=durable)).root
            look = None
            try:
                state = self.open(root)
            except NoSuchFile:
                if reads_left == 1:
                    raise
                continue
            self._reusable = self._file.publisher.reusable_state(state)
            return state
        raise AssertionError("the last read returns or raises")

    def open(self, root: Root | None) -> State:
        """The repository as a root says it is.

        Raises:
            NoSuchFile: what it names is gone: read the root again.
            CorruptFile, TransportError: as `read`.
        """
        if root is None:
            return State(None, None, None)
        if root.deleted:
            return State(root, RootView(root, self._file.folder), None)
        with self._guard:
            latest = self._latest
        if latest is None or latest.root != root:  # All of it, as in a commit.
            latest = Snapshot.open(self._file.folder, root, latest, self._texts, self._again)
            with self._guard:
                # Never back to an older one, which a slower thread may have opened.
                kept = self._latest
                if kept is None or kept.root.incarnation != root.incarnation or kept.root.version <= root.version:
                    self._latest = latest
        return State(root, latest.view, latest)

    def take_reusable(self) -> State | None:
        """Behind a link, once: what was read last. None where it is as well to read now."""
        reusable, self._reusable = self._reusable, None
        return reusable


def reader(file: RootFile, texts: TextCache, states: States | None = None) -> Reopen:
    """Opens the repository as it is now. `states`: whose newest snapshot is taken over while they live; a strong
    reference would form a cycle, and keep the files of a repository nobody uses open until the next garbage collection.
    """
    known = None if states is None else weakref.ref(states)

    def again() -> Snapshot | None:
        living = None if known is None else known()
        return (living or States(file, texts)).read().snapshot

    return again
