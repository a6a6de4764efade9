"""The simulated network: a real blocking client and a real server in one thread, on a virtual clock.

The client waits in `read`, `poll` or `connect`; waiting runs the clock, and the clock runs the server. Computing takes
no virtual time, so all time that passes is waiting. Divided by the RTT at that time, it is the number of round trips.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

from netem.clock import Clock
from netem.counter import Counter, Counts
from netem.link import Link
from netem.simulated_endpoint import Endpoint, Tap
from netem.simulated_server import LOW_WATER, ServerProtocol, ServerTransport
from netem.simulated_stream import SimulatedStream
from netem.simulated_waiting import Waiting

__all__ = ["LOW_WATER", "Deadlock", "ServerProtocol", "ServerTransport", "SimulatedNetwork", "SimulatedStream", "Tap"]


class Deadlock(Exception):
    """The client waits, and no event is left that could end the wait."""


class SimulatedNetwork:
    """Connections over one link with one virtual clock. Their traffic is counted together."""

    def __init__(self, link: Link, clock: Clock | None = None) -> None:
        link.check_streams(simulated=True)
        self.link = link
        self.links: deque[Link] = deque()
        """The links of the next connections, one for each. Later connections use `link`."""
        self.tap: Tap | None = None
        """A function that is called with all bytes that enter the link, or None."""
        self.clock = Clock() if clock is None else clock
        self.counter = Counter()
        """The counter of the present operation."""
        self.opened = 0
        """The number of connections so far, which is the number of the last one."""
        self._waiting = Waiting()
        self._ends: WeakValueDictionary[tuple[int, bool], Endpoint] = WeakValueDictionary()

    def change(self, link: Link) -> None:
        """Replace the link from now on, for open connections too. Effects that count bytes start again from 0.

        Bytes in transit are delivered as before; bytes that were held for ever are sent again.
        """
        link.check_streams(simulated=True)
        self.link = link
        self._waiting.change(self.clock.nanoseconds, link.round_trip)
        for _, end in sorted(self._ends.items()):
            end.change(link)

    def connect(
        self, server_factory: Callable[[ServerTransport], ServerProtocol] | None, *, handshake: bool = True
    ) -> SimulatedStream:
        """Open a connection to a server that `server_factory` creates from its transport; None means that no server
        listens.

        With `handshake` the client first waits one round trip, of the length that it has at the beginning. The server
        is created when the handshake's third packet arrives. Without `handshake`, the connection counts as open
        already.

        Raises:
            ConnectionRefusedError: no server listens.
        """
        self.opened += 1
        number = self.opened
        counter = self.counter
        link = self.links.popleft() if self.links else self.link
        client = SimulatedStream(self, number, link)
        server = ServerTransport(self, number, link)
        self._ends[number, True], self._ends[number, False] = client, server  # for a change during the handshake
        counter.opened(number, self.clock.nanoseconds, handshake=handshake)
        if handshake:
            end = self.clock.nanoseconds + link.round_trip
            self.clock.call_at(end, lambda: None)
            self.wait(lambda: self.clock.nanoseconds >= end, None, "a handshake", link.round_trip, connecting=True)
            counter.established(number, self.clock.nanoseconds)
        if server_factory is None:
            raise ConnectionRefusedError(f"connection {number}: nobody listens")
        Endpoint.join(client, server)
        server.expect(server_factory)
        if handshake:
            self.clock.call_at(self.clock.nanoseconds + client.link.one_way(up=True), server.accept)
        else:
            server.accept()
        return client

    def __enter__(self) -> Self:
        """Return the network itself, which needs no start."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: unlike other networks, this one has no thread and no socket."""

    def take(self) -> Counts:
        """Return the counts since the last `take` or the start, and begin a new operation.

        If a server or a timer calls this during a wait, the wait is divided between the two operations.
        """
        counts = self.counts()
        self.counter = Counter()
        self._waiting = self._waiting.rest(self.clock.nanoseconds)
        return counts

    def counts(self) -> Counts:
        """Return the counts so far without resetting them."""
        self._waiting.charge(self.clock.nanoseconds)
        return self.counter.counts(*self._waiting.rounds(self.link.round_trip))

    def wait(
        self, met: Callable[[], bool], timeout: float | None, what: str, rtt: int, *, connecting: bool = False
    ) -> None:
        """Let time pass until `met()` is true, at most `timeout` seconds. Count it as waiting on a link of `rtt` (ns).

        Raises:
            Deadlock: there is no timeout, and `met` will never be true.
        """
        self._waiting.begin(self.clock.nanoseconds, rtt, connecting=connecting)
        try:
            happened = self.clock.run_until(met, timeout)
        finally:
            self._waiting.end(self.clock.nanoseconds)
        if not happened and timeout is None:
            counts = self.counts()
            raise Deadlock(
                f"at {self.clock.now:.3f} s the client waits for {what} and nothing is left to happen; "
                f"so far {counts.bytes_up} bytes up, {counts.bytes_down} bytes down, {counts.rounds} round trips"
            )
