"""The counters of a server as Prometheus reads them: the page `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from smartserver.meters import METERS, NANOSECONDS, Unit
from smartserver.server.pages import Answer
from smartserver.server.request_meters import LIMIT, OPEN, REQUESTS, SECONDS, WOULD_FIND, WOULD_HIT, ServerCounts

PREFIX = "smartserver_"


class ServerCollector(Collector):
    """Reports the counts of a server, of one process or several, to Prometheus."""

    def __init__(self, counts: Callable[[], ServerCounts]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        counts = self._counts()
        for meter, count in zip(METERS, counts.meters, strict=True):
            value = count / NANOSECONDS if meter.unit is Unit.SECONDS else count
            yield CounterMetricFamily(PREFIX + meter.name, meter.help, value=value)
        outcomes = CounterMetricFamily(PREFIX + REQUESTS.name, REQUESTS.help, labels=REQUESTS.labels)
        for verb, by_outcome in counts.outcomes.items():
            for outcome, count in by_outcome.items():
                outcomes.add_metric([verb, outcome], count)
        yield outcomes
        seconds = HistogramMetricFamily(PREFIX + SECONDS.name, SECONDS.help, labels=SECONDS.labels)
        for verb, histogram in counts.seconds.items():
            seconds.add_metric([verb], list(histogram.buckets()), histogram.total)
        yield seconds
        limit = GaugeMetricFamily(PREFIX + LIMIT.name, LIMIT.help, labels=LIMIT.labels)
        hit = GaugeMetricFamily(PREFIX + WOULD_HIT.name, WOULD_HIT.help, labels=WOULD_HIT.labels)
        find = GaugeMetricFamily(PREFIX + WOULD_FIND.name, WOULD_FIND.help, labels=WOULD_FIND.labels)
        for name, cache in counts.caches.items():
            limit.add_metric([name], cache.limit)
            for size in cache.sizes:
                hit.add_metric([name, str(size.size)], size.hits)
                find.add_metric([name, str(size.size)], size.found)
        yield from (limit, hit, find)
        yield GaugeMetricFamily(PREFIX + OPEN.name, OPEN.help, value=counts.open)


def page(collector: Collector, accept: str, answer: Callable[[Answer], None]) -> None:
    """Answer a request for the page of a collector (`pages.Page`), in a format that the header `accept` allows."""
    registry = CollectorRegistry()
    registry.register(collector)
    encode, kind = choose_encoder(accept)
    answer((HTTPStatus.OK, kind, encode(registry)))
