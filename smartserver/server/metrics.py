"""The counters of a server as Prometheus reads them: `GET /metrics`, on a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from smartserver.meters import METERS, NANOSECONDS, Unit, counted
from smartserver.server.connections import Clock
from smartserver.server.request_meters import OPEN, REQUESTS, SECONDS, RequestMeters

PAGE = b"/metrics"

PREFIX = "smartserver_"

MAX_CONNECTIONS = 16
"""Connections to the page at a time: a monitor has one, and who looks by hand another."""

LONGEST = 30.0
"""Seconds that one may last: Prometheus gives a page 10 seconds."""

MAX_HEAD = 16 << 10
"""Bytes of a request."""

Page = Callable[[bytes, str], tuple[HTTPStatus, str, bytes]]
"""As `page`, of one collector."""


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


def page(collector: Collector, path: bytes, accept: str) -> tuple[HTTPStatus, str, bytes]:
    """The status, type and content of a path. Prometheus chooses among the forms that it reads."""
    if path != PAGE:
        return HTTPStatus.NOT_FOUND, "text/plain", b"there is /metrics\n"
    registry = CollectorRegistry()
    registry.register(collector)
    encode, kind = choose_encoder(accept)
    return HTTPStatus.OK, kind, encode(registry)


class MetricsProtocol(Protocol):
    """One connection with one request (HTTP/1.1, RFC 9112). No body is read, and the answer ends the connection."""

    _carrier: Any
    """The transport: Twisted's interfaces say nothing to a type checker."""

    def __init__(self, page: Page, clock: Clock, ended: Callable[[], None]) -> None:
        """`ended` is called when the connection is gone."""
        self._page = page
        self._clock = clock
        self._ended = ended
        self._head = b""
        self._answered = False

    def connectionMade(self) -> None:
        """It has `LONGEST`, whatever its client does."""
        self._carrier = self.transport
        self._timer = self._clock.callLater(LONGEST, self._carrier.abortConnection)

    def dataReceived(self, data: bytes) -> None:
        """A part of the request came."""
        if self._answered:
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD:
            self._answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "text/plain", b"")
        elif end:
            first, *fields = head.split(b"\r\n")
            words = first.split(b" ")
            if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
                self._answer(HTTPStatus.BAD_REQUEST, "text/plain", b"")
            elif words[0] != b"GET":
                self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"", "Allow: GET\r\n")
            else:
                said = dict(field.lower().split(b":", 1) for field in fields if b":" in field)
                self._answer(
                    *self._page(words[1].partition(b"?")[0], said.get(b"accept", b"").strip().decode("latin-1"))
                )

    def connectionLost(self, reason: Failure | None = None) -> None:
        """It is gone."""
        if self._timer.active():
            self._timer.cancel()
        self._ended()

    def _answer(self, status: HTTPStatus, kind: str, content: bytes, fields: str = "") -> None:
        self._answered, self._head = True, b""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(content)}\r\n{fields}\r\n"
        )
        self._carrier.write(head.encode() + content)
        self._carrier.loseConnection()


class MetricsFactory(Factory):
    """Serves the page to so many connections at a time; others are closed at once."""

    noisy = False

    def __init__(self, collector: Collector, clock: Clock) -> None:
        self._page = partial(page, collector)
        self._clock = clock
        self._open = 0

    def buildProtocol(self, address: object) -> MetricsProtocol | None:
        """One connection; None where there are enough."""
        if self._open == MAX_CONNECTIONS:
            return None
        self._open += 1
        return MetricsProtocol(self._page, self._clock, self._closed)

    def _closed(self) -> None:
        self._open -= 1
