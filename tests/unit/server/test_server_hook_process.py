"""server.hook_process, hook_url: the output of a command is bounded, a message is signed, and each has its time."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from traced_memory import traced

from smartserver.server.hook_process import MOST_SAID, Ended, run_command
from smartserver.server.hook_url import ReceiverFailed, post


def run(place: Path, text: str) -> Ended:
    return run_command(["/bin/sh", "-c", text], {}, {"PATH": os.defpath}, place, 60)


def test_the_beginning_of_its_output_is_told(tmp_path: Path) -> None:
    """The rest is counted, and neither in memory nor on the disk."""
    size = 20_000_000
    with traced() as memory:
        ended = run(tmp_path, f"head -c {size} /dev/zero | tr '\\0' x; ls; exit 1")
    assert ended.why == f"{'x' * MOST_SAID}; and {size + 3 - MOST_SAID:,} bytes more"
    assert memory.peak < 1_000_000
    assert os.listdir(tmp_path) == ["in"]  # As the command saw, which took three bytes of its output.


def test_one_that_closes_its_output_goes_on(tmp_path: Path) -> None:
    assert run(tmp_path, "echo one; echo; exec >&- 2>&-; sleep 0.1; touch later; exit 3").why == "one"
    assert (tmp_path / "later").exists()


def test_a_process_that_left_the_group_is_not_waited_for(tmp_path: Path) -> None:
    """It has the output open."""
    apart = "setsid sh -c 'touch gone; exec sleep 1000' & while ! [ -e gone ]; do sleep 0.01; done"
    ended = run(tmp_path, f"{apart}; echo $!; exit 1")
    os.kill(int(ended.why), signal.SIGKILL)


PATIENCE = 60


class _Http(BaseHTTPRequestHandler):
    status = 200
    heard: list[tuple[bytes, str, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((body, self.headers["X-Smartserver-Signature"] or "", self.headers["Content-Type"]))
        self.send_response(self.status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def http() -> Iterator[tuple[str, type[_Http]]]:
    class Handler(_Http):
        heard: list[tuple[bytes, str, str]] = []

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/pushed", Handler
        server.shutdown()
        thread.join()


def test_a_url_gets_a_signed_post(http: tuple[str, type[_Http]]) -> None:
    url, handler = http
    post(url, b"one", "of both", 60)
    post(url + "?a=b", b"two", "", 60)
    (body, signature, kind), (_, unsigned, _) = handler.heard
    assert body == b"one"
    assert signature == "sha256=" + hmac.new(b"of both", body, hashlib.sha256).hexdigest()
    assert (kind, unsigned) == ("application/json", "")


@pytest.mark.parametrize("status", [301, 404, 500])
def test_a_url_that_does_not_take_it(http: tuple[str, type[_Http]], status: int) -> None:
    url, handler = http
    handler.status = status
    with pytest.raises(ReceiverFailed, match=f"it answered with status {status}"):
        post(url, b"{}", "", 60)


@contextlib.contextmanager
def dripping(begins: bytes) -> Iterator[str]:
    """The place of a server whose answer begins so, and goes on byte by byte until its reader leaves."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(begins)
                while not threading.Event().wait(0.02):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_url_that_answers_no_http() -> None:
    with (
        dripping(b"220 mail.example.org\r\n") as place,
        pytest.raises(ReceiverFailed, match="it answered no HTTP: BadStatusLine"),
    ):
        post(f"http://{place}", b"{}", "", 60)


def test_a_url_whose_answer_does_not_end() -> None:
    """Its status is all that counts."""
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n") as place:
        post(f"http://{place}", b"{}", "", 60)


def test_dead_addresses_leave_time_for_the_next(http: tuple[str, type[_Http]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its share of what is left."""
    url, handler = http
    dead, now, limits = ("192.0.2.1", 80), 100.0, list[float | None]()

    class Socket(socket.socket):
        def connect(self, place: Any) -> None:
            nonlocal now
            limit = self.gettimeout()
            limits.append(limit)
            if place == dead:
                now += limit or 0
                raise TimeoutError
            super().connect(place)

    places = [dead, dead, ("127.0.0.1", urlsplit(url).port)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", Socket)
    monkeypatch.setattr("smartserver.server.hook_url.time.monotonic", lambda: now)
    post(url, b"{}", "", 60)
    assert len(handler.heard) == 1
    assert limits == [20, 20, 20]


@pytest.mark.parametrize(
    ("scheme", "begins"), [("http", b"HTTP/1.1 200 OK\r\nX: "), ("http", b""), ("https", b"\x16\x03\x03\x40\x00")]
)
def test_a_url_that_answers_byte_by_byte(scheme: str, begins: bytes) -> None:
    """Each read succeeds: the status, or the greeting of TLS, never ends."""
    with (
        dripping(begins) as place,
        pytest.raises(ReceiverFailed, match=r"^it did not answer within 0.3 s$"),
    ):
        post(f"{scheme}://{place}/", b"{}", "", 0.3)


@pytest.mark.parametrize(("port", "why"), [("1", "Connection refused"), ("x", "Port could not be cast")])
def test_a_url_that_nobody_can_reach(port: str, why: str) -> None:
    with pytest.raises(ReceiverFailed, match=why):
        post(f"http://127.0.0.1:{port}/", b"{}", "", 60)
