"""Small servers for the simulated network, and what a client does with them."""

from __future__ import annotations

from collections.abc import Callable

from netem.clock import Clock
from netem.link import Link
from netem.simulated import SimulatedNetwork
from netem.simulated_server import ServerTransport
from netem.simulated_stream import SimulatedStream


class Echo:
    """Sends back what it gets, and ends when the client does."""

    def __init__(self, transport: ServerTransport) -> None:
        self.transport = transport
        self.lost: list[ConnectionError | None] = []

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def eof_received(self) -> None:
        self.transport.close()

    def connection_lost(self, error: ConnectionError | None) -> None:
        self.lost.append(error)


class Sink(Echo):
    """Keeps what it gets; `on_data` and `on_eof` may do more."""

    def __init__(
        self,
        transport: ServerTransport,
        on_data: Callable[[Sink], None] | None = None,
        on_eof: Callable[[Sink], None] | None = None,
    ) -> None:
        super().__init__(transport)
        self.received = bytearray()
        self.eof = False
        self._on_data = on_data
        self._on_eof = on_eof

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self._on_data is not None:
            self._on_data(self)

    def eof_received(self) -> None:
        self.eof = True
        if self._on_eof is not None:
            self._on_eof(self)


class Ticking(Echo):
    """Sends a byte now and then, so many times, whoever reads it."""

    def __init__(self, transport: ServerTransport, clock: Clock, pause: float, times: int) -> None:
        super().__init__(transport)
        self._clock, self._pause, self._left = clock, pause, times
        self._tick()

    def _tick(self) -> None:
        if self._left:
            self._left -= 1
            self.transport.write(b".")
            self._clock.call_later(self._pause, self._tick)


class Kept:
    """A server factory that keeps what it made."""

    def __init__(
        self, on_data: Callable[[Sink], None] | None = None, on_eof: Callable[[Sink], None] | None = None
    ) -> None:
        self.made: list[Sink] = []
        self._on_data = on_data
        self._on_eof = on_eof

    def __call__(self, transport: ServerTransport) -> Sink:
        self.made.append(Sink(transport, self._on_data, self._on_eof))
        return self.made[-1]

    @property
    def last(self) -> Sink:
        return self.made[-1]


def network(rtt: float = 1.0, rate: float | None = None, **options: object) -> SimulatedNetwork:
    return SimulatedNetwork(Link(rtt, rate, **options))  # type: ignore[arg-type]


def read_all(stream: SimulatedStream) -> bytes:
    return b"".join(iter(lambda: stream.read(1 << 20), b""))


def ask(stream: SimulatedStream, text: bytes = b"ask") -> bytes:
    stream.send(text)
    answer = b""
    while len(answer) < len(text):
        answer += stream.read(100)
    return answer
