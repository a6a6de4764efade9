"""The counters of a server as Prometheus reads them: the page `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from smartserver.meters import METERS, NANOSECONDS, Unit, counted
from smartserver.server.pages import Answer
from smartserver.server.request_meters import OPEN, REQUESTS, SECONDS, RequestMeters

PREFIX = "smartserver_"


class ServerCollector(Collector):
    """Reads the registry, the requests by verb, and how many connections are open."""

    def __init__(self, requests: RequestMeters, open_connections: Callable[[], int]) -> None:
        self._requests = requests
        self._open = open_connections

    def collect(self) -> Iterator[Metric]:
        """Everything, as it is now."""
        for meter, count in zip(METERS, counted(), strict=True):
            value = count / NANOSECONDS if meter.unit is Unit.SECONDS else count
            yield CounterMetricFamily(PREFIX + meter.name, meter.help, value=value)
        outcomes = CounterMetricFamily(PREFIX + REQUESTS.name, REQUESTS.help, labels=REQUESTS.labels)
        for labels, count in self._requests.outcomes.items():
            outcomes.add_metric(labels, count)
        yield outcomes
        seconds = HistogramMetricFamily(PREFIX + SECONDS.name, SECONDS.help, labels=SECONDS.labels)
        for verb, histogram in self._requests.seconds.items():
            seconds.add_metric([verb], list(histogram.buckets()), histogram.total)
        yield seconds
        yield GaugeMetricFamily(PREFIX + OPEN.name, OPEN.help, value=self._open())


def page(collector: Collector, accept: str, answer: Callable[[Answer], None]) -> None:
    """The page of a collector (`pages.Page`). Prometheus chooses among the forms that it reads."""
    registry = CollectorRegistry()
    registry.register(collector)
    encode, kind = choose_encoder(accept)
    answer((HTTPStatus.OK, kind, encode(registry)))
