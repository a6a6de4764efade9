"""The simulated network: a real blocking client and a real server in one thread, on a virtual clock.

The client waits in `read`, `poll` or `connect`; waiting runs the clock, and the clock runs the server. Computing takes
no virtual time, so the time that passed is waiting and nothing else: divided by the RTT it is the round trips.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

from netem.callsites import call_sites
from netem.clock import Clock
from netem.counter import Counter, Counts
from netem.effects import Ending
from netem.link import Lane, Link
from netem.units import NEVER

LOW_WATER = 64 * 1024
"""A server transport asks for more when fewer bytes than this wait to get onto the link."""


class Deadlock(Exception):
    """The client waits, and nothing is left that could ever happen."""


class ServerProtocol(Protocol):
    """The server's side of one connection: what the network calls. An exception here reaches the waiting client."""

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""

    def eof_received(self) -> None:
        """The client sends no more; the server may still write, and closes when it is done."""

    def connection_lost(self, error: ConnectionError | None) -> None:
        """The last call: None after the server's own `close`, else why it is lost."""


class _Endpoint(ABC):
    """One end of a connection: what it sends goes through its lane to its peer."""

    def __init__(self, network: SimulatedNetwork, number: int, link: Link, *, up: bool) -> None:
        self._network = network
        self._clock = network.clock
        self._link = link
        self._up = up
        self._number = number
        self._lane: Lane = link.lane(up=up)
        self._outbox: deque[bytes] = deque()
        self._outbox_size = 0
        self._eof_written = False
        self._eof_sent = False
        self._peer: _Endpoint | None = None
        self._error: ConnectionError | None = None
        self._closed = False

    @abstractmethod
    def _received(self, content: bytes) -> None:
        """Bytes have come from the peer."""

    @abstractmethod
    def _ended(self) -> None:
        """The peer sends no more."""

    @abstractmethod
    def _lost(self, error: ConnectionError) -> None:
        """The connection is gone."""

    @property
    def _unread(self) -> int:
        """Bytes received that nobody has taken."""
        return 0

    def _room(self) -> int:
        return max(0, self._lane.room(self._clock.nanoseconds) - self._outbox_size)

    def _put(self, content: bytes) -> None:
        self._outbox.append(content)
        self._outbox_size += len(content)
        self._pump()

    def _put_eof(self) -> None:
        if not self._eof_written:
            self._eof_written = True
            self._pump()

    def _pump(self) -> None:
        """Move what was written onto the link, as far as the receiver's window goes."""
        peer = self._peer
        if peer is None or self._error is not None:
            return
        while self._outbox:
            room = self._link.window - self._lane.undelivered - peer._unread
            if room <= 0:
                return
            content = self._outbox.popleft()
            if len(content) > room:
                self._outbox.appendleft(content[room:])
                content = content[:room]
            self._outbox_size -= len(content)
            self._enter(content, Ending.MORE)
        if self._eof_written and not self._eof_sent:
            self._eof_sent = True
            self._enter(b"", Ending.EOF)

    def _enter(self, content: bytes, ending: Ending) -> None:
        assert self._peer is not None
        now = self._clock.nanoseconds
        counter = self._network._counter
        end = ending is Ending.EOF
        message = counter.sent(
            self._number,
            now,
            len(content),
            up=self._up,
            end=end,
            ended=self._peer._eof_written,
            content=content,
            sites=call_sites if self._up else None,
        )
        for parcel in self._lane.enter(now, content, ending, (counter, message)):
            if not parcel.stuck:
                self._clock.call_at(parcel.at, self._deliver)
            if now < parcel.left < NEVER:
                self._clock.call_at(parcel.left, self._left)

    @abstractmethod
    def _left(self) -> None:
        """Bytes have left the buffer."""

    def _deliver(self) -> None:
        """Take the next parcel off the link to the peer (one that is reset loses what comes after the reset)."""
        peer = self._peer
        if self._error is not None or peer is None:
            return
        parcel = self._lane.take()
        counter, message = parcel.tag
        if peer._closed and parcel.content:
            # Nobody will read this: the kernel answers with a reset.
            self._clock.call_at(self._clock.nanoseconds + self._link.one_way(up=not self._up), self._refused)
        elif not peer._closed and peer._error is None:
            if message is not None and (parcel.content or parcel.ending is Ending.EOF):
                counter.delivered(message, self._clock.nanoseconds)
            if parcel.content:
                peer._received(bytes(parcel.content))
            if parcel.ending is Ending.EOF:
                peer._ended()
        if parcel.ending is Ending.CUT:
            self._break(ConnectionResetError("the link was cut"))
            peer._break(ConnectionResetError("the link was cut"))
        self._pump()

    def _refused(self) -> None:
        self._break(ConnectionResetError("reset by the other end: it had closed the connection"))

    def _abort(self) -> None:
        peer, when = self._peer, self._clock.nanoseconds + self._link.one_way(up=self._up)
        if peer is not None and self._error is None:
            error = ConnectionResetError("reset by the other end")
            self._clock.call_at(when, lambda: peer._break(error))
        self._break(ConnectionAbortedError("aborted here"))

    def _break(self, error: ConnectionError) -> None:
        if self._error is None:
            self._error = error
            self._lane.clear()
            self._outbox.clear()
            self._outbox_size = 0
            if not self._closed:
                self._lost(error)


class SimulatedStream(_Endpoint):
    """The client's end: a blocking duplex byte stream with the shape of a medium.

    `read` and `poll` let virtual time pass; `write_some`, `half_close` and `close` do not.
    """

    def __init__(self, network: SimulatedNetwork, number: int, link: Link) -> None:
        super().__init__(network, number, link, up=True)
        self._buffer: deque[bytes] = deque()
        self._buffered = 0
        self._eof = False

    @property
    def _unread(self) -> int:
        return self._buffered

    def readable(self) -> bool:
        """Whether `read` would return (or raise) at once; no time passes."""
        return bool(self._buffered or self._eof or self._error is not None)

    def writable(self) -> bool:
        """Whether a third of the socket buffer is free (the kernel's rule), or writing would raise; no time passes."""
        return self._error is not None or self._room() * 3 >= min(self._link.buffer, self._link.window)

    def write_some(self, content: bytes | bytearray | memoryview) -> int:
        """Take as much of `content` as the socket buffer has room for, and say how much; no time passes.

        Raises:
            ConnectionError: the connection is lost.
            ValueError: this side was closed.
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
        """Take all of `content`, letting time pass while the socket buffer is full.

        Raises:
            ConnectionError: the connection is lost.
            Deadlock: there will never be room.
        """
        rest = memoryview(content)
        while rest:
            rest = rest[self.write_some(rest) :]
            if rest:
                self.poll(read=False, write=True)

    def read(self, size: int) -> bytes:
        """Wait for bytes and return 1 to `size` of them, or none at the end of the stream.

        Raises:
            ConnectionError: the connection is lost (after what had come before).
            Deadlock: nothing will ever come.
        """
        self._check_open()
        if size < 1:
            raise ValueError(f"read of {size} bytes: expected 1 or more")
        self._network._wait(self.readable, None, f"bytes on connection {self._number}")
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
            self._peer._pump()  # the window has room again; telling the sender so costs nothing here
        return content

    def poll(self, read: bool = True, write: bool = False, timeout: float | None = None) -> tuple[bool, bool]:
        """Wait until one of those asked for is possible: (readable, writable), both false after `timeout` seconds.

        Raises:
            Deadlock: without a timeout: neither will ever be.
            ValueError: asked for neither, without a timeout.
        """
        self._check_open()
        if not read and not write and timeout is None:
            raise ValueError("poll for nothing, without a timeout")

        def ready() -> bool:
            return (read and self.readable()) or (write and self.writable())

        wanted = " or ".join([*["bytes"] * read, *["room to write"] * write]) or "nothing"
        self._network._wait(ready, timeout, f"{wanted} on connection {self._number}")
        return read and self.readable(), write and self.writable()

    def half_close(self) -> None:
        """Send no more; reading goes on."""
        self._check_open()
        self._put_eof()

    def close(self) -> None:
        """Send no more and read no more; what was written is still delivered. Closing twice is nothing."""
        if self._closed:
            return
        self._put_eof()
        self._closed = True
        if self._buffered:
            # Bytes that came and were never read: the kernel resets instead of ending the stream politely.
            self._buffer.clear()
            self._buffered = 0
            self._abort()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"connection {self._number} is closed")

    def _left(self) -> None:
        pass  # `poll` looks again after each event

    def _received(self, content: bytes) -> None:
        self._buffer.append(content)
        self._buffered += len(content)

    def _ended(self) -> None:
        self._eof = True

    def _lost(self, error: ConnectionError) -> None:
        pass  # the next call tells


class ServerTransport(_Endpoint):
    """The server's end: writes never wait."""

    def __init__(self, network: SimulatedNetwork, number: int, link: Link) -> None:
        super().__init__(network, number, link, up=False)
        self.low_water = LOW_WATER
        """Bytes waiting below which `want_more` is called."""
        self.want_more: Callable[[], None] | None = None
        """A producer's turn: called after a `write` and when bytes have left, while fewer than `low_water` wait."""
        self._protocol: ServerProtocol | None = None
        self._asking = False
        self._asked_at = 0
        self._told = False

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
        assert self._protocol is not None
        self._protocol.data_received(content)

    def _ended(self) -> None:
        assert self._protocol is not None
        self._protocol.eof_received()

    def _lost(self, error: ConnectionError) -> None:
        self._tell(error)


class SimulatedNetwork:
    """Connections over one link, on one virtual clock, counted together."""

    def __init__(self, link: Link, clock: Clock | None = None) -> None:
        self.link = link
        self.clock = Clock() if clock is None else clock
        self._counter = Counter()
        self._connections = 0
        self._waited = 0
        self._connecting = 0

    def connect(
        self, server_factory: Callable[[ServerTransport], ServerProtocol] | None, *, handshake: bool = True
    ) -> SimulatedStream:
        """Open a connection to a server that `server_factory` makes from its transport.

        With `handshake` the client waits one round trip first, and the server is made when the handshake's third packet
        arrives; without, the connection counts as open already. None for the factory: nobody listens.

        Raises:
            ConnectionRefusedError: nobody listens.
        """
        self._connections += 1
        number = self._connections
        counter = self._counter
        client = SimulatedStream(self, number, self.link)
        server = ServerTransport(self, number, self.link)
        counter.opened(number, self.clock.nanoseconds, handshake=handshake)
        if handshake:
            begun = self._waited
            self._sleep(self.link.round_trip)
            self._connecting += self._waited - begun
            counter.established(number, self.clock.nanoseconds)
        if server_factory is None:
            raise ConnectionRefusedError(f"connection {number}: nobody listens")
        client._peer, server._peer = server, client
        factory = server_factory

        def accept() -> None:
            server._protocol = factory(server)

        if handshake:
            self.clock.call_at(self.clock.nanoseconds + self.link.one_way(up=True), accept)
        else:
            accept()
        return client

    def take(self) -> Counts:
        """The counts since the last `take` (or the beginning); a new operation begins."""
        counts = self.counts()
        self._counter = Counter()
        self._waited = self._connecting = 0
        return counts

    def counts(self) -> Counts:
        """The counts so far; nothing is begun anew."""
        rtt = self.link.round_trip
        if not rtt:
            return self._counter.counts()
        return self._counter.counts(self._waited / rtt, (self._waited - self._connecting) / rtt)

    def _sleep(self, duration: int) -> None:
        end = self.clock.nanoseconds + duration
        self.clock.call_at(end, lambda: None)
        self._wait(lambda: self.clock.nanoseconds >= end, None, "a handshake")

    def _wait(self, met: Callable[[], bool], timeout: float | None, what: str) -> None:
        begun = self.clock.nanoseconds
        if not self.clock.run_until(met, timeout) and timeout is None:
            counts = self.counts()
            raise Deadlock(
                f"at {self.clock.now:.3f} s the client waits for {what} and nothing is left to happen; "
                f"so far {counts.bytes_up} bytes up, {counts.bytes_down} bytes down, {counts.rounds} round trips"
            )
        self._waited += self.clock.nanoseconds - begun
