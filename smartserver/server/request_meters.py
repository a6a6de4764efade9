"""`RequestMeters`: the numbers and times of a server's requests, by verb. They are not counted by user or path, because
clients choose both, and the number of different values is unlimited."""

from __future__ import annotations

import bisect
import operator
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from smartserver.meters import NOTHING, counted, together
from smartserver.server.request_log import EndedRequest
from smartserver.store.caches import SharedCache, Size


class Labelled(NamedTuple):
    """A metric with a number for each combination of its labels' values."""

    name: str
    labels: tuple[str, ...]
    help: str


REQUESTS: Final = Labelled(
    "requests",
    ("verb", "outcome"),
    "Requests that are over; one with several verbs counts for each. The outcome is `done`, `lost` or the code of an "
    "error.",
)
SECONDS: Final = Labelled(
    "request_seconds", ("verb",), "Time from the first byte of a request to its final answer, as a histogram."
)
LIMIT: Final = Labelled("cache_limit", ("cache",), "Bytes that a cache of a process may take.")
WOULD_HIT: Final = Labelled(
    "cache_would_hit", ("cache", "size"), "How often a cache of that size would have had what was asked for, lately."
)
WOULD_FIND: Final = Labelled(
    "cache_would_find", ("cache", "size"), "Bytes that a cache of that size would have had of that."
)
OPEN: Final = Labelled("open_connections", (), "Connections that are open now.")

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The bounds of the histogram in seconds: from a ping on a fast disk to a push over a slow link."""

NO_VERB = ""
"""The verb under which requests that could not be decoded are counted."""


class Histogram(msgspec.Struct, array_like=True):
    """A histogram of the time that requests took."""

    total: float = 0.0
    """The sum of all times, in seconds."""
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    """For each bound of `BUCKETS`, the number of requests between the bound before it and itself. The last number is of
    slower requests."""

    def add(self, seconds: float) -> None:
        """Count a request that took `seconds`."""
        self.counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.total + other.total, list(map(operator.add, self.counts, other.counts)))

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Yield each bound, and the number of requests that took that long or less."""
        count = 0
        for bound, more in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            count += more
            yield bound, count


class CacheCounts(msgspec.Struct, array_like=True):
    """The limit of a cache, and the hits that caches of other sizes would have had."""

    limit: int = 0
    sizes: list[Size] = []

    def __add__(self, other: CacheCounts) -> CacheCounts:
        if not self.sizes or not other.sizes:
            return self if self.sizes else other
        pairs = zip(self.sizes, other.sizes, strict=True)
        sizes = [Size(one.size, one.hits + more.hits, one.found + more.found) for one, more in pairs]
        return CacheCounts(max(self.limit, other.limit), sizes)


class ServerCounts(msgspec.Struct, array_like=True):
    """All counts of a process, or the sum of several."""

    meters: list[int] = msgspec.field(default_factory=lambda: list(NOTHING))
    """The counts, in the order of `METERS`."""
    outcomes: dict[str, dict[str, int]] = {}
    """The number of requests, by verb and outcome."""
    seconds: dict[str, Histogram] = {}
    """The times of requests, by verb."""
    open: int = 0
    """Connections that are open."""
    caches: dict[str, CacheCounts] = {}
    """The caches by name."""

    def __add__(self, other: ServerCounts) -> ServerCounts:
        outcomes = {verb: dict(counts) for verb, counts in self.outcomes.items()}
        for verb, counts in other.outcomes.items():
            mine = outcomes.setdefault(verb, {})
            for outcome, count in counts.items():
                mine[outcome] = mine.get(outcome, 0) + count
        seconds = dict(self.seconds)
        for verb, histogram in other.seconds.items():
            seconds[verb] = seconds.get(verb, Histogram()) + histogram
        meters = list(together(self.meters, other.meters))
        caches = dict(self.caches)
        for name, cache in other.caches.items():
            caches[name] = caches.get(name, CacheCounts()) + cache
        return ServerCounts(meters, outcomes, seconds, self.open + other.open, caches)


class RequestMeters:
    """Counts requests. Several threads may use it, because some requests end in a thread of a lane."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._outcomes: dict[str, dict[str, int]] = {}
        self._seconds: dict[str, Histogram] = {}

    def add(self, ended: EndedRequest) -> None:
        """Count a request."""
        with self._guard:
            for verb, outcome in (ended.verbs or {NO_VERB: ended.outcome}).items():
                counts = self._outcomes.setdefault(verb, {})
                counts[outcome] = counts.get(outcome, 0) + 1
                self._seconds.setdefault(verb, Histogram()).add(ended.lasted)

    def counts(self, open_connections: int, caches: Mapping[str, SharedCache[Any]] | None = None) -> ServerCounts:
        """Return these counts together with the other counts of the process. `caches`: the caches by name."""
        of_caches = {
            name: CacheCounts(cache.limit, cache.demand.sizes())
            for name, cache in (caches or {}).items()
            if cache.demand is not None
        }
        return ServerCounts(list(counted()), self._outcomes, self._seconds, open_connections, of_caches)
