"""An HTTP client that asks for each item of a list by itself: what the test says, and the client that passes it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from netem.budget import TooManyRoundTrips, round_trips
from netem.watched import Watched

pytestmark = pytest.mark.sockets

ITEMS = {str(number): f"item {number}" for number in range(5)}


class Shop(BaseHTTPRequestHandler):
    """`/items`: the names; `/items/3`: one of them; `/items?all`: all of them at once."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer

    def do_GET(self) -> None:
        name = self.path.removeprefix("/items").lstrip("/")
        body = json.dumps(ITEMS if name == "?all" else ITEMS[name] if name else list(ITEMS)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def get(connection: http.client.HTTPConnection, path: str) -> object:
    connection.request("GET", path)
    return json.load(connection.getresponse())


def load_one_by_one(connection: http.client.HTTPConnection) -> dict[str, object]:
    names = get(connection, "/items")
    assert isinstance(names, list)
    return {name: get(connection, f"/items/{name}") for name in names}  # N+1


def load_at_once(connection: http.client.HTTPConnection) -> object:
    return get(connection, "/items?all")


def line_of(text: str) -> int:
    """The line of this file that ends so."""
    with open(__file__) as source:
        return 1 + [line.endswith(f"  {text}\n") for line in source].index(True)


def test_one_by_one_is_too_many(real_network: Watched, port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    with pytest.raises(TooManyRoundTrips) as caught, round_trips(real_network, at_most=1, handshake=False):
        load_one_by_one(connection)
    connection.close()
    said = str(caught.value)
    assert "took 7 round trips (1 of them opening connections), 1 connection" in said
    assert "5 round trips were made one after the other from" in said
    assert f"test_example_http.py:{line_of('# N+1')} in " in said
    assert "GET /items/4" in said
    assert "200 OK" in said


@pytest.mark.max_round_trips(1, handshake=False)
def test_at_once_is_one(real_network: Watched, port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    assert load_at_once(connection) == ITEMS
    connection.close()
