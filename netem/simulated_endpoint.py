"""One end of a simulated connection, client or server. Written bytes wait until the windows have room for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from netem.callsites import call_sites
from netem.clock import Clock
from netem.counter import Counter
from netem.effects import Ending, Parcel
from netem.link import Lane, Link
from netem.tcp_model import CongestionWindow
from netem.units import NEVER

Tap = Callable[[int, bool, bytes], object]
"""A function that is called with bytes that enter the link: (number of the connection, true if up, bytes)."""


class Surroundings(Protocol):
    """The part of the network that an end needs."""

    clock: Clock
    counter: Counter
    tap: Tap | None

    def wait(self, met: Callable[[], bool], timeout: float | None, what: str, rtt: int) -> None:
        """Let time pass until `met()` is true, at most `timeout` seconds. Count it as waiting on a link of `rtt` (ns).

        Raises:
            Deadlock: there is no timeout, and `met` will never be true.
        """


class Endpoint(ABC):
    """One end of a connection, which sends through its lane to its peer."""

    def __init__(self, network: Surroundings, number: int, link: Link, *, up: bool) -> None:
        self._network = network
        self._clock = network.clock
        self.link = link
        """The current link of the connection."""
        self._up = up
        self._number = number
        self._lane: Lane = link.lane(up=up, connection=number)
        self._congestion = None if link.tcp is None else link.tcp.begin(link.round_trip)
        self._outbox: deque[bytes] = deque()
        self._outbox_size = 0
        self._eof_written = False
        self._eof_sent = False
        self._peer: Endpoint | None = None
        self._error: ConnectionError | None = None
        self._closed = False

    @abstractmethod
    def _received(self, content: bytes) -> None:
        """Take bytes from the peer."""

    @abstractmethod
    def _ended(self) -> None:
        """Handle the end of the peer's stream."""

    @abstractmethod
    def _lost(self, error: ConnectionError) -> None:
        """Handle the loss of the connection."""

    @property
    def _unread(self) -> int:
        """The number of bytes that were received and not read."""
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
        """Move written bytes onto the link, as far as the receiver's window and TCP's modelled window allow."""
        peer = self._peer
        if peer is None or self._error is not None:
            return
        while self._outbox:
            room = self.link.window - self._lane.undelivered - peer._unread
            if self._congestion is not None:
                room = min(room, self._congestion.room(self._clock.nanoseconds))
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
        counter = self._network.counter
        if self._congestion is not None and content:
            self._congestion.sent(now, len(content))
        if self._network.tap is not None and content:
            self._network.tap(self._number, self._up, content)
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
        self._under_way(self._lane.enter(now, content, ending, (counter, message)))

    def _under_way(self, parcels: Iterable[Parcel]) -> None:
        now = self._clock.nanoseconds
        for parcel in parcels:
            if not parcel.stuck:
                self._clock.call_at(parcel.at, self._deliver)
            if now < parcel.left < NEVER:
                self._clock.call_at(parcel.left, self._left)

    def change(self, link: Link) -> None:
        """Replace the link."""
        self.link = link
        if self._congestion is not None:
            self._congestion.measured(link.round_trip)
        self._under_way(self._lane.change(self._clock.nanoseconds, link))
        self._pump()

    @abstractmethod
    def _left(self) -> None:
        """Handle the event that bytes have left the sender's buffer."""

    def _deliver(self) -> None:
        """Deliver the next parcel to the peer, unless this end has lost the connection."""
        peer = self._peer
        if self._error is not None or peer is None:
            return
        parcel = self._lane.take()
        counter, message = parcel.tag
        if self._congestion is not None and parcel.content:
            self._acknowledge(self._congestion, len(parcel.content))
        if peer._closed and parcel.content:
            # The peer never reads this, so its kernel answers with a reset.
            self._clock.call_at(self._clock.nanoseconds + self.link.one_way(up=not self._up), self._refused)
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

    def _acknowledge(self, congestion: CongestionWindow, size: int) -> None:
        """Notify the sender, half a round trip later, that bytes were delivered, which opens and enlarges its
        window."""

        def acknowledged() -> None:
            congestion.acknowledged(size)
            self._pump()

        self._clock.call_at(self._clock.nanoseconds + self.link.one_way(up=not self._up), acknowledged)

    def _refused(self) -> None:
        self._break(ConnectionResetError("reset by the other end: it had closed the connection"))

    def _abort(self) -> None:
        peer, when = self._peer, self._clock.nanoseconds + self.link.one_way(up=self._up)
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

    @staticmethod
    def join(client: Endpoint, server: Endpoint) -> None:
        """Connect the two ends, so that each delivers its bytes to the other from now on."""
        client._peer, server._peer = server, client
