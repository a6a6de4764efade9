"""The counters of a server as Prometheus reads them: `GET /metrics`, on a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from twisted.internet.protocol import Factory
from twisted.web.http import NOT_FOUND
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from smartserver.meters import METERS, NANOSECONDS, Unit, counted
from smartserver.server.request_meters import OPEN, REQUESTS, SECONDS, RequestMeters

PAGE = b"/metrics"

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


class MetricsPage(Resource):
    """The page `/metrics`, in the client's choice of the forms that Prometheus reads; there is no other."""

    isLeaf = True

    def __init__(self, collector: Collector) -> None:
        super().__init__()
        self._registry = CollectorRegistry()
        self._registry.register(collector)

    def render_GET(self, request: Request) -> bytes:
        """The page."""
        if request.path != PAGE:
            request.setResponseCode(NOT_FOUND)
            return b"there is /metrics\n"
        encode, kind = choose_encoder(request.getHeader("accept") or "")
        request.setHeader("content-type", kind)
        return encode(self._registry)


def page_of(collector: Collector) -> Factory:
    """The factory of connections that are served the page."""
    site: Any = Site(MetricsPage(collector))  # Its interfaces say nothing to a type checker.
    site.noisy = False
    return cast("Factory", site)
