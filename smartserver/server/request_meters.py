"""`RequestMeters`: what a server counts of its requests, by verb. No user and no path is in it: both come from outside,
and there may be any number of them."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from smartserver.server.request_log import EndedRequest


class Labelled(NamedTuple):
    """A name under which there is a number for each value of its labels."""

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
OPEN: Final = Labelled("open_connections", (), "Connections that are open now.")

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: from a ping on a fast disk to a push over a slow link."""

NO_VERB = ""
"""Of requests that could not be read."""


class Histogram:
    """How many requests took how long."""

    def __init__(self) -> None:
        self.total = 0.0
        """Seconds of all of them."""
        self._counts = [0] * (len(BUCKETS) + 1)

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> Iterator[tuple[str, float]]:
        """For each bound how many took that long or less."""
        count = 0
        for bound, more in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            count += more
            yield bound, count


class RequestMeters:
    """For the thread that moves the bytes, where every request ends."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """By verb and outcome."""
        self.seconds: dict[str, Histogram] = {}
        """By verb."""

    def add(self, ended: EndedRequest) -> None:
        """Count a request."""
        for verb, outcome in (ended.verbs or {NO_VERB: ended.outcome}).items():
            self.outcomes[verb, outcome] += 1
            self.seconds.setdefault(verb, Histogram()).add(ended.lasted)
