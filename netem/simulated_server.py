"""The server's end of a simulated connection: it never waits, it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from netem.link import Link
from netem.simulated_endpoint import Endpoint, Surroundings

LOW_WATER = 64 * 1024
"""A server transport asks for more when fewer bytes than this wait to get onto the link."""


class ServerProtocol(Protocol):
    """The server's side of one connection: what the network calls. An exception here reaches the waiting client."""

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""

    def eof_received(self) -> None:
        """The client sends no more; the server may still write, and closes when it is done."""

    def connection_lost(self, error: ConnectionError | None) -> None:
        """The last call: None after the server's own `close`, else why it is lost."""


class ServerTransport(Endpoint):
    """The server's end: writes never wait."""

    def __init__(self, network: Surroundings, number: int, link: Link) -> None:
        super().__init__(network, number, link, up=False)
        self.low_water = LOW_WATER
        """Bytes waiting below which `want_more` is called."""
        self.want_more: Callable[[], None] | None = None
        """A producer's turn: called after a `write` and when bytes have left, while fewer than `low_water` wait."""
        self._protocol: ServerProtocol | None = None
        self._make: Callable[[ServerTransport], ServerProtocol] | None = None
        self._asking = False
        self._asked_at = 0
        self._told = False

    def serve(self, protocol: ServerProtocol) -> None:
        """Call `protocol` from now on."""
        self._protocol = protocol

    def expect(self, make: Callable[[ServerTransport], ServerProtocol]) -> None:
        """Have `make` make the protocol at `accept`, or before the first thing that comes if that is earlier."""
        self._make = make

    def accept(self) -> None:
        """The handshake is over: make the protocol, unless it is made."""
        make, self._make = self._make, None
        if make is not None:
            self._protocol = make(self)

    def write(self, content: bytes | bytearray | memoryview) -> None:
        """Send `content` after what was written before. After the connection was lost it goes nowhere.

        Raises:
            ValueError: after `close`.
        """
        if self._eof_written:
            raise ValueError("write after close")
        if self._error is None and len(content):
            self._asked_at = self.low_water
            self._put(bytes(content))

    def pending(self) -> int:
        """Bytes written that are not yet on the link: behind its rate, or behind a client that does not read."""
        return self._outbox_size + self._lane.unsent(self._clock.nanoseconds)

    def close(self) -> None:
        """End the stream after what was written. What the client sends from now on is answered with a reset."""
        if not self._eof_written:
            self._put_eof()
            self._closed = True
            self._clock.call_later(0, lambda: self._tell(None))

    def abort(self) -> None:
        """Lose the connection at once, and what was written with it."""
        self._abort()

    def _pump(self) -> None:
        super()._pump()
        self._left()

    def _left(self) -> None:
        if self.pending() < min(self._asked_at, self.low_water) and not self._asking:
            self._asking = True
            # Not from inside `write`: a producer that writes when asked would recurse.
            self._clock.call_later(0, self._more)

    def _more(self) -> None:
        self._asking = False
        self._asked_at = self.pending()
        if self.want_more is not None and self._error is None and not self._eof_written:
            self.want_more()

    def _tell(self, error: ConnectionError | None) -> None:
        if not self._told and self._protocol is not None:
            self._told = True
            self._protocol.connection_lost(error)

    def _received(self, content: bytes) -> None:
        self.accept()  # a link changed meanwhile may bring this before the handshake's third packet
        assert self._protocol is not None
        self._protocol.data_received(content)

    def _ended(self) -> None:
        self.accept()
        assert self._protocol is not None
        self._protocol.eof_received()

    def _lost(self, error: ConnectionError) -> None:
        self._tell(error)
