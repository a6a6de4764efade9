"""The client's end of a simulated connection, the only end that waits."""

from __future__ import annotations

from collections import deque

from netem.link import Link
from netem.simulated_endpoint import Endpoint, Surroundings


class SimulatedStream(Endpoint):
    """The client's end: a blocking duplex byte stream with the methods of a medium.

    `read`, `poll` and `send` let virtual time pass; `write_some`, `half_close` and `close` do not.
    """

    def __init__(self, network: Surroundings, number: int, link: Link) -> None:
        super().__init__(network, number, link, up=True)
        self._buffer: deque[bytes] = deque()
        self._buffered = 0
        self._eof = False

    @property
    def _unread(self) -> int:
        return self._buffered

    def readable(self) -> bool:
        """Tell whether `read` would return or raise an error at once. No time passes."""
        return bool(self._buffered or self._eof or self._error is not None)

    def writable(self) -> bool:
        """Tell whether a third of the socket buffer is free (the kernel's rule), or a write would raise an error at
        once."""
        return self._error is not None or self._room() * 3 >= min(self.link.buffer, self.link.window)

    def write_some(self, content: bytes | bytearray | memoryview) -> int:
        """Write as much of `content` as the socket buffer has room for, and return the number of bytes. No time passes.

        Raises:
            ConnectionError: the connection is lost.
            ValueError: this side is closed.
        """
        self._check_open()
        if self._eof_written:
            raise ValueError("write after half_close")
        if self._error is not None:
            raise self._error
        size = min(self._room(), len(content))
        if size:
            self._put(bytes(memoryview(content)[:size]))
        return size

    def send(self, content: bytes | bytearray | memoryview) -> None:
        """Write all of `content`, letting time pass while the socket buffer is full.

        Raises:
            ConnectionError: the connection is lost.
            Deadlock: the buffer will never have room.
        """
        rest = memoryview(content)
        while rest:
            rest = rest[self.write_some(rest) :]
            if rest:
                self.poll(read=False, write=True)

    def read(self, size: int) -> bytes:
        """Wait for bytes and return 1 to `size` of them, or none at the end of the stream.

        Raises:
            ConnectionError: the connection is lost, and all received bytes have been read.
            Deadlock: no byte can ever arrive.
        """
        self._check_open()
        if size < 1:
            raise ValueError(f"read of {size} bytes: expected 1 or more")
        self._network.wait(self.readable, None, f"bytes on connection {self._number}", self.link.round_trip)
        if not self._buffer:
            if self._error is not None:
                raise self._error
            return b""
        content = self._buffer.popleft()
        if len(content) > size:
            self._buffer.appendleft(content[size:])
            content = content[:size]
        self._buffered -= len(content)
        if self._peer is not None:
            self._peer._pump()  # the window has room again, which the sender learns here without a delay
        return content

    def poll(self, read: bool = True, write: bool = False, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait until a requested read or write is possible, at most `timeout` seconds. Return (readable, writable).

        Raises:
            Deadlock: there is no timeout, and neither will ever be possible.
            ValueError: both are false and there is no timeout.
        """
        self._check_open()
        if not read and not write and timeout is None:
            raise ValueError("poll for nothing, without a timeout")

        def ready() -> bool:
            return (read and self.readable()) or (write and self.writable())

        wanted = " or ".join([*["bytes"] * read, *["room to write"] * write]) or "nothing"
        self._network.wait(ready, timeout, f"{wanted} on connection {self._number}", self.link.round_trip)
        return read and self.readable(), write and self.writable()

    def half_close(self) -> None:
        """Send no more. Reading is still possible."""
        self._check_open()
        self._put_eof()

    def close(self) -> None:
        """Send no more and read no more. Written bytes are still delivered. A second call does nothing."""
        if self._closed:
            return
        self._put_eof()
        self._closed = True
        if self._buffered:
            # After unread bytes, the kernel resets the connection instead of ending the stream.
            self._buffer.clear()
            self._buffered = 0
            self._abort()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"connection {self._number} is closed")

    def _left(self) -> None:
        pass  # `poll` checks again after each event

    def _received(self, content: bytes) -> None:
        self._buffer.append(content)
        self._buffered += len(content)

    def _ended(self) -> None:
        self._eof = True

    def _lost(self, error: ConnectionError) -> None:
        pass  # the next call raises the error
