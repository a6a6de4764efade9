"""The server's end of a simulated connection. It never waits: the clock calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from netem.link import Link
from netem.simulated_endpoint import Endpoint, Surroundings

LOW_WATER = 64 * 1024
"""The default number of waiting bytes below which a server transport calls `want_more`."""


class ServerProtocol(Protocol):
    """The server's callbacks for one connection. An exception in a callback is raised in the waiting client."""

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""

    def eof_received(self) -> None:
        """Handle the end of the client's stream. The server may still write, and must close the transport later."""

    def connection_lost(self, error: ConnectionError | None) -> None:
        """Handle the end of the connection. This is the last call. `error` is None after the server's own `close`."""


class ServerTransport(Endpoint):
    """The server's end of a connection. Its writes never wait."""

    def __init__(self, network: Surroundings, number: int, link: Link) -> None:
        super().__init__(network, number, link, up=False)
        self.low_water = LOW_WATER
        """The number of waiting bytes below which `want_more` is called."""
        self.want_more: Callable[[], None] | None = None
        """A function to call after a `write`, and when bytes have left, while fewer than `low_water` bytes wait."""
        self._protocol: ServerProtocol | None = None
        self._make: Callable[[ServerTransport], ServerProtocol] | None = None
        self._asking = False
        self._asked_at = 0
        self._told = False

    def serve(self, protocol: ServerProtocol) -> None:
        """Call the methods of `protocol` from now on."""
        self._protocol = protocol

    def expect(self, make: Callable[[ServerTransport], ServerProtocol]) -> None:
        """Set the function that creates the protocol. It is called by `accept`, or earlier when the first bytes
        arrive."""
        self._make = make

    def accept(self) -> None:
        """Create the protocol unless it exists, because the handshake is over."""
        make, self._make = self._make, None
        if make is not None:
            self._protocol = make(self)

    def write(self, content: bytes | bytearray | memoryview) -> None:
        """Send `content` after earlier writes. After a loss of the connection, `content` is dropped.

        Raises:
            ValueError: the transport is closed.
        """
        if self._eof_written:
            raise ValueError("write after close")
        if self._error is None and len(content):
            self._asked_at = self.low_water
            self._put(bytes(content))

    def pending(self) -> int:
        """Return the number of written bytes that wait for the link's rate, or for a client that does not read."""
        return self._outbox_size + self._lane.unsent(self._clock.nanoseconds)

    def close(self) -> None:
        """End the stream after the written bytes. Bytes that the client sends from now on are answered with a reset."""
        if not self._eof_written:
            self._put_eof()
            self._closed = True
            self._clock.call_later(0, lambda: self._tell(None))

    def abort(self) -> None:
        """Reset the connection at once and drop the written bytes."""
        self._abort()

    def _pump(self) -> None:
        super()._pump()
        self._left()

    def _left(self) -> None:
        if self.pending() < min(self._asked_at, self.low_water) and not self._asking:
            self._asking = True
            # Not from inside `write`: a producer that writes in `want_more` would recurse.
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
        self.accept()  # after a change of the link, bytes may come before the handshake's third packet
        assert self._protocol is not None
        self._protocol.data_received(content)

    def _ended(self) -> None:
        self.accept()
        assert self._protocol is not None
        self._protocol.eof_received()

    def _lost(self, error: ConnectionError) -> None:
        self._tell(error)
