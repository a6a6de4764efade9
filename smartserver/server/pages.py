"""The pages of a server for monitoring, on a port of their own: `GET` without a body (HTTP/1.1, RFC 9112)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from smartserver.server.connections import Clock

TEXT = "text/plain; charset=utf-8"

MAX_CONNECTIONS = 16
"""The most concurrent connections to the pages. A monitor, a load balancer and an administrator need one each."""

LONGEST = 30.0
"""Seconds that a connection may last. Prometheus waits 10 seconds for a page."""

MAX_HEAD = 16 << 10
"""The most bytes of a request's head."""

Answer = tuple[HTTPStatus, str, bytes]
"""The status, type and content of a page."""

Page = Callable[[str, Callable[[Answer], None]], None]
"""A function that gets the `Accept` header of a request, and a function that it calls with the page, at once or
later."""


class PagesProtocol(Protocol):
    """A connection with one request. No body is read, and the answer ends the connection."""

    _carrier: Any
    """The transport. It is `Any` because Twisted's interfaces are unknown to a type checker."""

    def __init__(self, pages: Mapping[bytes, Page], clock: Clock, ended: Callable[[], None]) -> None:
        """`pages`: the pages by path. `ended`: is called when the connection is closed."""
        self._pages = pages
        self._clock = clock
        self._ended = ended
        self._head = b""
        self._is_asked = False

    def connectionMade(self) -> None:
        """Limit the time of the connection to `LONGEST`."""
        self._carrier = self.transport
        self._timer = self._clock.callLater(LONGEST, self._carrier.abortConnection)

    def dataReceived(self, data: bytes) -> None:
        """Process a part of the request. Answer the request once its head is complete."""
        if self._is_asked:
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        self._is_asked = bool(end) or len(head) > MAX_HEAD
        if len(head) > MAX_HEAD:
            self._answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TEXT, b"")
        elif end:
            first, *fields = head.split(b"\r\n")
            words = first.split(b" ")
            if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
                self._answer(HTTPStatus.BAD_REQUEST, TEXT, b"")
            elif words[0] != b"GET":
                self._answer(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"", "Allow: GET\r\n")
            else:
                said = dict(field.lower().split(b":", 1) for field in fields if b":" in field)
                page = self._pages.get(words[1].partition(b"?")[0], self._no_page)
                page(said.get(b"accept", b"").strip().decode("latin-1"), lambda answer: self._answer(*answer))

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Cancel the timer, and report that the connection is closed."""
        if self._timer.active():
            self._timer.cancel()
        self._ended()

    def _no_page(self, _: str, answer: Callable[[Answer], None]) -> None:
        answer((HTTPStatus.NOT_FOUND, TEXT, b"there is %b\n" % b", ".join(sorted(self._pages))))

    def _answer(self, status: HTTPStatus, kind: str, content: bytes, fields: str = "") -> None:
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(content)}\r\n{fields}\r\n"
        )
        self._carrier.write(head.encode() + content)
        self._carrier.loseConnection()


class PagesFactory(Factory):
    """Serves pages to at most `MAX_CONNECTIONS` connections at a time. Further connections are closed at once."""

    noisy = False

    def __init__(self, pages: Mapping[bytes, Page], clock: Clock) -> None:
        self._pages = pages
        self._clock = clock
        self._open = 0

    def buildProtocol(self, address: object) -> PagesProtocol | None:
        """Return the protocol of a new connection; None if there are too many."""
        if self._open == MAX_CONNECTIONS:
            return None
        self._open += 1
        return PagesProtocol(self._pages, self._clock, self._closed)

    def _closed(self) -> None:
        self._open -= 1
