"""The requests of the last day and their answers, as a state knows them.

They answer a request that is repeated, say what changed since a version, and are the audit log.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from smartserver.store.record import MARK, Change, Natural, Record

KEPT = 24 * 3600 * 1000
"""Milliseconds an entry is kept."""
KEPT_ENTRIES = 1000
"""Newest entries that are kept at any age: a clock may jump a day ahead before a request is repeated."""
KEPT_BYTES = 16 << 20
"""Bytes of all entries, at most; the newest is always kept."""
MOST_BESIDE = 64
"""Entries beside a line, after which a line of its own is made: a request is looked for among them one by one."""
CLOCK_MARGIN = 600 * 1000
"""Milliseconds by which the clocks of servers that share a store may differ."""


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """The effect of one request: the version it made, that one's mark, and when (milliseconds since the epoch)."""

    version: Natural
    mark: Natural
    time: int
    user: str
    request: bytes
    outcomes: bytes
    changes: tuple[Change, ...] = ()
    options: tuple[str, ...] = ()


class Horizon(msgspec.Struct, frozen=True, array_like=True):
    """The version and the time from which the entries are complete.

    `version`: every later change is among them; `mark`: of the entry before, 0 if there is none. `since`: every request
    carried out from this time on (milliseconds since the epoch) is among them.
    """

    version: Natural = 0
    mark: Natural = 0
    since: int = 0


ALL = Horizon()
"""The horizon of a repository whose every entry is there."""

_encode = msgspec.msgpack.Encoder().encode


class _Line:
    """Entries of one line of states, which share it: each state sees a part."""

    def __init__(self, entries: Sequence[LogEntry], sizes: Sequence[int]) -> None:
        self.entries, self.sizes = list(entries), list(sizes)
        self.by_request = {entry.request: index for index, entry in enumerate(entries)}
        self._guard = threading.Lock()

    def append(self, end: int, entries: Sequence[LogEntry], sizes: Sequence[int]) -> bool:
        """Add entries, if there are `end` of them now."""
        with self._guard:
            if len(self.entries) != end:
                return False
            self.by_request.update((entry.request, index) for index, entry in enumerate(entries, end))
            self.entries += entries
            self.sizes += sizes
        return True


class History:
    """The entries of a state, oldest first, which never change.

    To add entries takes no copy of the others: the next history shares their line. Of two that follow the same one, in
    threads at once, one gets the line. The other has its own entries beside it, until they are many.
    """

    def __init__(self, entries: Sequence[LogEntry] = (), horizon: Horizon = ALL) -> None:
        self._line = _Line(entries, [len(_encode(entry)) for entry in entries])
        self._start, self._end = 0, len(entries)
        self._beside: tuple[LogEntry, ...] = ()
        """The entries after the part of the line."""
        self._size = sum(self._line.sizes)
        self.horizon = horizon

    def __len__(self) -> int:
        return self._end - self._start + len(self._beside)

    def __iter__(self) -> Iterator[LogEntry]:
        entries = self._line.entries
        return chain((entries[index] for index in range(self._start, self._end)), self._beside)

    def __reversed__(self) -> Iterator[LogEntry]:
        entries = self._line.entries
        return chain(reversed(self._beside), (entries[index] for index in range(self._end - 1, self._start - 1, -1)))

    def find(self, request: bytes) -> LogEntry | None:
        """The entry of a request."""
        for entry in self._beside:
            if entry.request == request:
                return entry
        index = self._line.by_request.get(request, -1)
        return self._line.entries[index] if self._start <= index < self._end else None

    def after(self, version: int) -> Iterator[LogEntry]:
        """The entries of later versions, oldest first."""
        entries = self._line.entries
        first = bisect.bisect_right(entries, version, self._start, self._end, key=lambda entry: entry.version)
        beside = (entry for entry in self._beside if entry.version > version)
        return chain((entries[index] for index in range(first, self._end)), beside)

    def mark(self, version: int) -> int:
        """The mark of a version that is the horizon's or later."""
        newest = next((entry for entry in reversed(self) if entry.version <= version), None)
        return self.horizon.mark if newest is None else newest.mark

    def extend(self, record: Record, record_hash: bytes) -> None:
        """Add what the requests of a record did, and drop what is too old beside it: only of a copy, by who made it."""
        number, mark = record.number, int.from_bytes(record_hash[:MARK], "big")
        what = [
            LogEntry(number, mark, record.time, each.user, each.request, each.outcomes, each.changes, each.options)
            for each in record.entries
        ]
        sizes = [len(_encode(entry)) for entry in what]
        if self._start * 2 > self._end or len(self._beside) > MOST_BESIDE:
            self._gather()
        if not self._beside and self._line.append(self._end, what, sizes):
            self._end += len(what)
        else:
            self._beside += tuple(what)
        self._size += sum(sizes)
        while len(self) > 1:
            if self._start == self._end:
                self._gather()
            oldest = self._line.entries[self._start]
            old = oldest.time + KEPT < record.time and len(self) > KEPT_ENTRIES
            if not old and self._size <= KEPT_BYTES:
                break
            # A clock that was ahead must not make every later repeat one that the entries do not reach.
            self.horizon = Horizon(oldest.version, oldest.mark, min(oldest.time, record.time) + CLOCK_MARGIN)
            self._size -= self._line.sizes[self._start]
            self._start += 1

    def _gather(self) -> None:
        """Put all entries into a line of their own."""
        sizes = self._line.sizes[self._start : self._end] + [len(_encode(entry)) for entry in self._beside]
        self._line = _Line(list(self), sizes)
        self._start, self._end, self._beside = 0, len(self._line.entries), ()

    def forget(self, now: int) -> None:
        """Say that earlier requests may be missing, as `extend`. `now`: milliseconds since the epoch."""
        self.horizon = msgspec.structs.replace(self.horizon, since=now)
