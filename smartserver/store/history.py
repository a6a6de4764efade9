"""The requests of the last day and their answers, as part of a state. A server uses them to answer a repeated request,
to send a client the changes since a version, and as the audit log."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from smartserver.store.record import MARK, Change, Natural, Record

KEPT = 24 * 3600 * 1000
"""Milliseconds for which an entry is kept in the history."""
KEPT_ENTRIES = 1000
"""The number of newest entries that are kept at any age: a clock may jump a day ahead before a request is repeated."""
KEPT_BYTES = 16 << 20
"""The most encoded bytes of all entries of a history. The newest entry is kept at any size."""
MOST_BESIDE = 64
"""The number of entries beside a shared line above which a history gets a line of its own. Entries beside the line are
searched one by one."""
CLOCK_MARGIN = 600 * 1000
"""Milliseconds by which the clocks of servers that share a store may differ."""


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """The effect of one request and the answer to it. `version`, `mark`: the version that the request created, and its
    mark. `time`: milliseconds since the epoch."""

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

    The entries have every change after `version`, and every request from the time `since` on (milliseconds since the
    epoch). `mark`: the mark of the entry before the first; 0 if the first is the oldest.
    """

    version: Natural = 0
    mark: Natural = 0
    since: int = 0


ALL = Horizon()
"""The horizon of a history with all entries since the creation of the repository."""

_encode = msgspec.msgpack.Encoder().encode


class _Line:
    """The entries of successive states, which share one list: each state sees a part of it."""

    def __init__(self, entries: Sequence[LogEntry], sizes: Sequence[int]) -> None:
        self.entries, self.sizes = list(entries), list(sizes)
        self.by_request = {entry.request: index for index, entry in enumerate(entries)}
        self._guard = threading.Lock()

    def append(self, end: int, entries: Sequence[LogEntry], sizes: Sequence[int]) -> bool:
        """Add entries and return True, if the line has `end` entries now; else return False."""
        with self._guard:
            if len(self.entries) != end:
                return False
            self.by_request.update((entry.request, index) for index, entry in enumerate(entries, end))
            self.entries += entries
            self.sizes += sizes
        return True


class History:
    """The entries of a state, oldest first; they never change.

    Adding an entry copies no other entries, because the next history shares the line. If two threads extend the same
    history, one gets the line. The other keeps its own entries beside the line, until they are many.
    """

    def __init__(self, entries: Sequence[LogEntry] = (), horizon: Horizon = ALL) -> None:
        self._line = _Line(entries, [len(_encode(entry)) for entry in entries])
        self._start, self._end = 0, len(entries)
        self._beside: tuple[LogEntry, ...] = ()
        """The newest entries, which follow this history's part of the line."""
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
        """Return the entry of a request, or None."""
        for entry in self._beside:
            if entry.request == request:
                return entry
        index = self._line.by_request.get(request, -1)
        return self._line.entries[index] if self._start <= index < self._end else None

    def after(self, version: int) -> Iterator[LogEntry]:
        """Return the entries of versions after `version`, oldest first."""
        entries = self._line.entries
        first = bisect.bisect_right(entries, version, self._start, self._end, key=lambda entry: entry.version)
        beside = (entry for entry in self._beside if entry.version > version)
        return chain((entries[index] for index in range(first, self._end)), beside)

    def mark(self, version: int) -> int:
        """Return the mark of a version that is not before the horizon."""
        newest = next((entry for entry in reversed(self) if entry.version <= version), None)
        return self.horizon.mark if newest is None else newest.mark

    def extend(self, record: Record, record_hash: bytes) -> None:
        """Add the entries of a record, and drop entries that are now too old. This method changes the history, so it
        must be called only on a new copy."""
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
            # After an entry of a clock that was ahead, `since` must not lie in the future, or every repeat would fail.
            self.horizon = Horizon(oldest.version, oldest.mark, min(oldest.time, record.time) + CLOCK_MARGIN)
            self._size -= self._line.sizes[self._start]
            self._start += 1

    def _gather(self) -> None:
        """Copy all entries into a new line, which no other history shares."""
        sizes = self._line.sizes[self._start : self._end] + [len(_encode(entry)) for entry in self._beside]
        self._line = _Line(list(self), sizes)
        self._start, self._end, self._beside = 0, len(self._line.entries), ()

    def forget(self, now: int) -> None:
        """Note that requests before `now` (milliseconds since the epoch) may be missing. This method changes the
        history, so it must be called only on a new copy."""
        self.horizon = msgspec.structs.replace(self.horizon, since=now)
