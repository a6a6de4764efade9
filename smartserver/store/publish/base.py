"""`Publisher`: how what a writer wrote becomes the repository's, by the repository's swap discipline.

There are two: `file` for a folder whose store locks files, `folder` for one that has only files and may be behind a
link. No other module of the writing side asks which of them it has, or where the store is.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

from smartserver.store.lock_folder import HeldLock, Holder
from smartserver.store.quarantine import Quarantine
from transports.base import Step, Transport
from transports.errors import FileExists, TransportError
from transports.steps import Put

StateT = TypeVar("StateT")


class Publisher(abc.ABC):
    """The steps of one discipline for one repository. Every method raises TransportError where the store failed."""

    def __init__(self, above: Transport, path: str, randomness: Callable[[int], bytes]) -> None:
        """`path`: the repository's, below `above`."""
        self.above = above
        self.path = path
        self.folder = above.child(path) if path else above
        self.randomness = randomness

    @abc.abstractmethod
    def hold(
        self, wait: Callable[[], float], first: Sequence[Step] = (), needed: Sequence[str] = ()
    ) -> AbstractContextManager[HeldLock]:
        """Hold the lock, with the root as it is then. `wait` says how many seconds it may take, once that matters.
        `first`: steps that are done before; `needed`: files that the holder needs, which are looked at.

        Raises:
            Locked: another writer held it all the time.
            NoSuchFile, NotADirectory: there is no folder.
            Unsupported: this store cannot lock.
        """

    @abc.abstractmethod
    def do_before_lock(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Do steps before the lock is taken; gives those that are left to `hold`, which does them in its own trip."""

    @abc.abstractmethod
    def sync_with_read(self) -> Sequence[Step]:
        """Steps that make a root durable in the trip that reads it; none where `make_durable` does that when needed."""

    @abc.abstractmethod
    def reusable_state(self, state: StateT) -> StateT | None:
        """The state that a request read first, if its commit may plan on it; None where reading again costs no trip."""

    @abc.abstractmethod
    def quarantine(self, request: bytes, prepare: Callable[[], str] | None = None) -> Quarantine:
        """A place for one pack; the arguments are those of `Quarantine`."""

    @abc.abstractmethod
    def replace(self, steps: Sequence[Step], temporary: str, is_current: Callable[[], bool]) -> None:
        """Do the steps, of which one puts the new root under a `temporary` name, then give it its name, durably. Only
        under the lock. `is_current`: whether the root surely is the old one.

        Raises:
            OutcomeUnknown: the root is the old one or the new one.
        """

    @abc.abstractmethod
    def sweep(self, incoming: Sequence[str], locks: Sequence[str], old: Callable[[float], bool]) -> int:
        """Delete what dead writers left in quarantine and at the lock; how many folders that was. `incoming`, `locks`:
        the names there; `old`: whether that time of last change is long ago by the store's clock."""

    @abc.abstractmethod
    def is_at_work(self, request: bytes) -> bool:
        """Whether a living writer surely has a quarantine for this request."""

    @abc.abstractmethod
    def holder(self) -> Holder | None:
        """Who holds the lock; None where nobody does.

        Raises:
            Unsupported: the lock ends with its holder.
        """

    @abc.abstractmethod
    def break_lock(self, holder: Holder) -> None:
        """Break the lock of a holder, dead or alive; a live one will change nothing any more.

        Raises:
            NoSuchFile: `holder` does not hold it.
            Unsupported: the lock ends with its holder.
        """


def write_new(folder: Transport, steps: Sequence[Step]) -> ExitStack:
    """Write new files and make their content durable, in one go; to close what is given deletes them, as far as that
    works.

    Raises:
        FileExists: a name is taken, and stays as it is.
    """
    undo = ExitStack()
    for step in steps:
        if isinstance(step, Put):
            undo.callback(discard, folder, step.path)
    try:
        folder.perform(steps)
    except FileExists:
        raise  # Whichever it was. What was made before it is nobody's, as after a crash.
    except BaseException:
        undo.close()
        raise
    return undo


def discard(folder: Transport, path: str) -> None:
    """Delete a file, as far as that works."""
    with contextlib.suppress(TransportError):
        folder.delete(path)
