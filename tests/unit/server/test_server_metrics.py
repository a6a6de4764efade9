"""server.metrics: what Prometheus reads."""

from __future__ import annotations

from typing import Any

import pytest
from counting import Counting
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.web.test.requesthelper import DummyRequest

from smartserver.meters import LOCK_TIME, METERS, NOTHING, READS, counted, here
from smartserver.server.metrics import PREFIX, MetricsPage, ServerCollector, page_of
from smartserver.server.request_log import EndedRequest
from smartserver.server.request_meters import RequestMeters

REQUESTS = RequestMeters()
REQUESTS.add(EndedRequest("192.0.2.7:50412", "anna", "ssh", None, 1, 2, 0.3, 0, 0, NOTHING, ["unsupported"]))
COLLECTOR = ServerCollector(REQUESTS, lambda: 7)


def samples(text: str) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels."""
    return {
        (sample.name.removeprefix(PREFIX), *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def collected() -> str:
    registry = CollectorRegistry()
    registry.register(COLLECTOR)
    return generate_latest(registry).decode()


def test_every_meter_is_there_with_its_help_and_seconds_are_seconds() -> None:
    counting, before = Counting(), counted()
    here.tally[READS] += 3
    here.tally[LOCK_TIME] += 2_500_000
    assert counting[READS] == 3
    text = collected()
    found = samples(text)
    for meter in METERS:
        assert f"# HELP {PREFIX}{meter.name}_total {meter.help}\n" in text
        assert (f"{meter.name}_total",) in found
    assert found["file_reads_total",] == before[READS] + 3
    assert found["lock_wait_seconds_total",] == pytest.approx(before[LOCK_TIME] / 1e9 + 0.0025)


def test_requests_have_neither_user_nor_address() -> None:
    text = collected()
    found = samples(text)
    assert found["requests_total", "unsupported", ""] == 1
    assert found["request_seconds_sum", ""] == 0.3
    assert (found["request_seconds_bucket", "0.25", ""], found["request_seconds_bucket", "0.5", ""]) == (0, 1)
    assert found["open_connections",] == 7
    assert "anna" not in text
    assert "192.0.2.7" not in text


def page(path: bytes, accept: str = "") -> Any:
    """A request for a page, answered."""
    request: Any = DummyRequest([])
    resource: Any = MetricsPage(COLLECTOR)
    request.path = path
    request.requestHeaders.setRawHeaders(b"accept", [accept.encode()])
    request.write(resource.render(request))
    return request


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0", ""])
def test_the_client_chooses_the_form(accept: str) -> None:
    asked = page(b"/metrics", accept)
    assert b"smartserver_open_connections 7.0\n" in b"".join(asked.written)
    (kind,) = asked.responseHeaders.getRawHeaders("content-type")
    assert kind.startswith(accept.partition(";")[0] or "text/plain")


@pytest.mark.parametrize("path", [b"/", b"/metrics/", b"/other"])
def test_there_is_one_page(path: bytes) -> None:
    assert page(path).responseCode == 404


def test_what_serves_it() -> None:
    made: Any = page_of(COLLECTOR)
    assert isinstance(made.resource, MetricsPage)
    assert not made.noisy
