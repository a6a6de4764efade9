"""server.health, metrics, pages: what a load balancer is told, and what Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import pytest
from counting import Counting
from memory_transport import MemoryTransport
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet import testing
from twisted.internet.task import Clock

from smartserver.meters import COMPRESSION_TIME, METERS, READS, counted, here
from smartserver.server.executor import InlineExecutor, Lane
from smartserver.server.health import FRESH, PATIENCE, Health, look_at
from smartserver.server.metrics import PREFIX, ServerCollector, page
from smartserver.server.pages import LONGEST, MAX_CONNECTIONS, MAX_HEAD, Answer, PagesFactory
from smartserver.server.request_meters import RequestMeters
from smartserver.store.format import CLUSTER
from transports.errors import NoSuchFile, TransportFailed
from transports.local import LocalTransport


class Server:
    """A server's health, and its store, which is looked at when `answer` is called."""

    def __init__(self, executor: Any = None) -> None:
        self.clock, self.looks = Clock(), list[Callable[[], None]]()
        self.fails: Exception | None = None
        self.health = Health(self.look, cast("Any", executor or self), cast("Any", self.clock))

    def run(self, work: Callable[[], str], done: Callable[[str], None], lane: Lane) -> None:
        assert lane is Lane.HEALTH
        self.looks.append(lambda: done(work()))

    def look(self) -> None:
        if self.fails:
            raise self.fails

    def answer(self) -> None:
        self.looks.pop()()

    def ask(self, page: bytes = b"/readyz") -> list[Answer]:
        """The answer, once there is one."""
        given: list[Answer] = []
        self.health.pages[page]("", given.append)
        return given


def is_ready(answers: list[Answer]) -> bool:
    ((status, _, _),) = answers
    return status is HTTPStatus.OK


def test_an_answer_of_the_store_counts_for_a_while() -> None:
    server = Server()
    first, second = server.ask(), server.ask()
    assert first == second == []
    server.answer()  # One look for both.
    assert (is_ready(first), is_ready(second)) == (True, True)
    server.fails = TransportFailed("", "it is\naway")
    server.clock.advance(FRESH)
    assert is_ready(server.ask())
    server.clock.advance(0.1)
    third = server.ask()
    server.answer()
    assert third == [(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", b"it is away\n")]
    server.fails = ValueError()  # A mistake of ours; the next look is made all the same.
    failed = server.ask()
    server.answer()
    assert not is_ready(failed)
    server.fails = None
    fourth = server.ask()
    server.answer()
    assert is_ready(fourth)
    assert not server.looks
    assert not server.clock.getDelayedCalls()


def test_a_store_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    first = server.ask()
    server.clock.advance(PATIENCE)
    assert first[0][2] == b"the store did not answer within 2 s\n"
    second = server.ask()
    server.clock.advance(PATIENCE)
    assert not is_ready(second)
    server.answer()  # Of the one look, which is too late for both.
    assert is_ready(server.ask())
    assert [each.message for each in caplog.records] == [f"not ready: {first[0][2].decode().strip()}", "ready again"]


def test_a_server_that_stops_is_alive_and_not_ready() -> None:
    server = Server()
    asked = server.ask()
    server.health.is_stopping = True
    server.answer()
    assert not is_ready(asked)
    assert server.ask()[0][2] == b"the server is stopping\n"
    assert is_ready(server.ask(b"/healthz"))


def test_the_folder_is_looked_at(tmp_path: Any) -> None:
    look_at(store := MemoryTransport(), None)
    look_at(LocalTransport(tmp_path), None)
    with pytest.raises(NoSuchFile, match="gone"):
        look_at(LocalTransport(tmp_path / "gone"), None)
    store.put(CLUSTER, [b"new"])
    with pytest.raises(TransportFailed, match="'smartserver-cluster': the file has changed since"):
        look_at(store, None)
    look_at(store, b"new")
    assert is_ready(Server(InlineExecutor()).ask())


COLLECTOR = ServerCollector(lambda: RequestMeters().counts(7))
PAGES = {b"/metrics": partial(page, COLLECTOR)}


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
    here.tally[COMPRESSION_TIME] += 2_500_000
    assert counting[READS] == 3
    text = collected()
    found = samples(text)
    for meter in METERS:
        assert f"# HELP {PREFIX}{meter.name}_total {meter.help}\n" in text
        assert (f"{meter.name}_total",) in found
    assert found["file_reads_total",] == before[READS] + 3
    assert found["compression_seconds_total",] == pytest.approx(before[COMPRESSION_TIME] / 1e9 + 0.0025)


def transport() -> Any:
    return cast("Any", testing).StringTransport()


def served(requests: Sequence[bytes], clock: Clock | None = None) -> list[Any]:
    """Connections to the page, on each of which one of `requests` came, byte by byte."""
    factory, carriers = PagesFactory(PAGES, cast("Any", clock or Clock())), []
    for request in requests:
        carrier = transport()
        made: Any = factory.buildProtocol(None)
        if made is None:
            carrier.disconnected = True
        else:
            made.makeConnection(carrier)
            for at in range(len(request)):
                made.dataReceived(request[at : at + 1])
        carriers.append(carrier)
    return carriers


def answer(request: bytes) -> tuple[str, str]:
    (carrier,) = served([request])
    assert carrier.disconnecting
    head, _, content = carrier.value().decode().partition("\r\n\r\n")
    assert f"\r\nContent-Length: {len(content)}\r\n" in head + "\r\n"
    assert "\r\nConnection: close\r\n" in head
    return head, content


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0", ""])
def test_the_client_chooses_the_form(accept: str) -> None:
    head, content = answer(b"GET /metrics?a=b HTTP/1.1\r\nHost: a\r\nACCEPT: %b\r\n\r\n" % accept.encode())
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "smartserver_open_connections 7.0\n" in content
    assert f"\r\nContent-Type: {accept.partition(';')[0] or 'text/plain'}" in head


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 100000000000\r\n\r\n" + bytes(100), "405 Method Not Allowed"),
        (b"GET /metrics\r\n\r\n", "400 Bad Request"),
        (b"hpss!1\n\r\n\r\n", "400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nA: " + b"a" * MAX_HEAD, "431 Request Header Fields Too Large"),
    ],
)
def test_what_is_no_request_of_the_page(request_: bytes, status: str) -> None:
    assert answer(request_)[0].startswith(f"HTTP/1.1 {status}\r\n")


def test_it_has_connections_and_time_of_its_own() -> None:
    """A client that sends nothing, or takes nothing, holds a place for as long as anybody else."""
    clock = Clock()
    held = [b"", b"GET /metrics HTTP/1.1\r\n\r\n"] * (MAX_CONNECTIONS // 2)
    carriers = served([*held, b""], clock)
    assert [carrier.disconnected for carrier in carriers] == [False] * MAX_CONNECTIONS + [True]
    clock.advance(LONGEST)
    assert all(carrier.disconnected for carrier in carriers)


def test_a_connection_that_ended_leaves_its_place() -> None:
    clock = Clock()
    factory = PagesFactory(PAGES, cast("Any", clock))
    for _ in range(MAX_CONNECTIONS + 1):
        made: Any = factory.buildProtocol(None)
        assert made is not None
        made.makeConnection(transport())
        made.connectionLost()
    assert not clock.getDelayedCalls()
