"""Group commit: changes that wait at the same time go into one record, whose syncs they share.

The first change to come appends a record. Those that come meanwhile wait, and the first of them appends the next one,
with all that wait by then. Each change is judged on the state that those before it in the record leave. One that is
refused stays out, and the others go on. Its refusal may rest on a change of the same record, so it is told when that
stands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from smartserver.errors import OutcomeUnknown
from smartserver.store.log import Log
from smartserver.store.log_view import Head
from smartserver.store.record import Entry
from smartserver.store.state import State, following
from transports.base import Step

AT_MOST = 64 << 10
"""Bytes of a record after which no more changes are added to it."""

Judge = Callable[[State], Entry | None]
"""Gives the entry of a change on a state, or None; in any thread, perhaps several times. Its error refuses the change.
"""

Looks = Callable[[State], Sequence[Step]]
"""Gives the steps of a change that are performed after a newest state was read, and before it is judged on that."""


class Draft(NamedTuple):
    """A change, the state that it is probably made on, and the record then, with the state after it."""

    base: State
    entry: Entry
    record: tuple[bytes, State]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A change that waits for its record."""

    judge: Judge
    looks: Looks
    draft: Draft | None
    come: threading.Event = field(default_factory=threading.Event)
    """Its record is there, or it is refused; or it is the first of those that wait, and appends one."""
    head: Head | None = None
    """The head with it, once it is there."""
    error: BaseException | None = None
    """Why it is refused, or what is not known of its record."""

    @property
    def is_over(self) -> bool:
        """True if it needs no record any more."""
        return self.head is not None or self.error is not None


class Group:
    """The changes of one repository by one process; usable from several threads at once."""

    def __init__(self, log: Log, clock: Callable[[], float]) -> None:
        """`clock`: seconds since the epoch."""
        self._log = log
        self._clock = clock
        self._guard = threading.Lock()
        self._waiting: list[_Waiting] = []
        """The first of them appends."""

    def draft(self, base: State, entry: Entry) -> Draft:
        """A change as the only one of a record."""
        return Draft(base, entry, following(base, self._clock(), (entry,)))

    def append(self, head: Head, judge: Judge, looks: Looks, draft: Draft | None = None) -> Head:
        """Append a change, with those that wait; the head then, which survives a loss of power. `head`: as of just now.
        `looks`: performed before `judge` is called, with those of the others. `draft`: the record that is published if
        this is its content."""
        own = _Waiting(judge, looks, draft)
        with self._guard:
            self._waiting.append(own)
            waits = len(self._waiting) > 1
        if waits:
            own.come.wait()
        if not own.is_over:
            self._append(None if waits else head)
        if own.error is not None:
            raise own.error
        assert own.head is not None
        return own.head

    def _append(self, head: Head | None) -> None:
        """Append one record, with the first of those that wait in it; the next one of them appends the next."""
        if self._log.turns.wait():
            head = None
        with self._guard:
            waiting = list(self._waiting)
        judged: Sequence[_Waiting] = waiting

        def judge(state: State) -> tuple[bytes, State] | None:
            nonlocal judged
            record, judged = self._judge(state, waiting)
            return record

        try:
            now = self._log.append(head or self._log.look(), judge)
        except Exception as error:
            # A refusal too may rest on what was not done, or is not known to be.
            for change in judged:
                change.error = error
        except BaseException:
            for change in judged:
                change.error = OutcomeUnknown("the server was interrupted")
            raise
        else:
            for change in judged:
                change.head = now
        finally:
            with self._guard:
                self._waiting = [change for change in self._waiting if not change.is_over]
                over = [*judged, *self._waiting[:1]]
            for change in over:
                change.come.set()

    def _judge(self, state: State, waiting: Sequence[_Waiting]) -> tuple[tuple[bytes, State] | None, list[_Waiting]]:
        """The record that follows a state, and whose changes were judged for it."""
        found: tuple[bytes, State] | None = None
        entries: tuple[Entry, ...] = ()
        judged: list[_Waiting] = []
        for change in waiting:
            change.error = None
        looks = [step for change in waiting for step in change.looks(state)]
        if looks:
            self._log.folder.perform(looks)
        for change in waiting:
            if found is not None and len(found[0]) >= AT_MOST:
                break
            judged.append(change)
            try:
                entry = change.judge(state if found is None else found[1])
                if entry is not None:
                    more, drafted = (*entries, entry), change.draft
                    if drafted is not None and (drafted.base.hash, (drafted.entry,)) == (state.hash, more):
                        found, entries = drafted.record, more
                    else:
                        found, entries = following(state, self._clock(), more), more
            except Exception as error:
                change.error = error
        return found, judged
