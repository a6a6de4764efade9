"""What can be measured: loopback without any emulator (what the ends themselves can do), proxy, packets, simulator."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from netem import accuracy_sockets
from netem.accuracy_sockets import CHUNK, dial
from netem.effects import Loss
from netem.link import Link
from netem.packets.network import Packets
from netem.proxy import Proxy
from netem.simulated import SimulatedNetwork
from netem.simulated_server import ServerTransport
from netem.units import NANOSECONDS


@dataclass(frozen=True)
class Loopback:
    """No emulator: what bounds the others. Its RTT is 0, whatever is asked."""

    address: tuple[str, int]
    name: ClassVar[str] = "none (loopback)"

    def echo(self, rtt: float, count: int) -> Sequence[float]:
        """As if the link itself were exact."""
        return [rtt + seconds for seconds in accuracy_sockets.echo(dial(*self.address), count)]

    def bulk(self, size: int) -> float:
        """See `Measured`."""
        return accuracy_sockets.bulk(dial(*self.address), size)

    def packets(self) -> None:
        """See `Measured`."""

    def exchanges(self, count: int) -> float:
        """See `Measured`."""
        return accuracy_sockets.exchanges(dial(*self.address), count)


@dataclass(frozen=True)
class OverProxy:
    """The proxy, on its thread in this process; the server is in another."""

    address: tuple[str, int]
    name: ClassVar[str] = "proxy"

    def echo(self, rtt: float, count: int) -> Sequence[float]:
        """See `Measured`."""
        with Proxy(rtt, self.address) as proxy:
            return accuracy_sockets.echo(dial(proxy.host, proxy.port), count)

    def bulk(self, size: int) -> float:
        """See `Measured`."""
        with Proxy(0.0, self.address) as proxy:
            return accuracy_sockets.bulk(dial(proxy.host, proxy.port), size)

    def packets(self) -> None:
        """See `Measured`."""

    def exchanges(self, count: int) -> float:
        """See `Measured`."""
        with Proxy(0.0, self.address) as proxy:
            return accuracy_sockets.exchanges(dial(proxy.host, proxy.port), count)


@dataclass
class OverPackets:
    """Packets between two namespaces, the emulator a process of its own; the server is in another."""

    network: Packets
    """Which runs."""
    port: int
    name: ClassVar[str] = "packets"
    _packets: int = 0

    def echo(self, rtt: float, count: int) -> Sequence[float]:
        """See `Measured`."""
        return accuracy_sockets.echo(self._over(rtt), count)

    def bulk(self, size: int) -> float:
        """See `Measured`."""
        connect = self._over(0.0)
        self.network.take()
        seconds = accuracy_sockets.bulk(connect, size)
        counts = self.network.take()
        self._packets = counts.packets_up + counts.packets_down
        return seconds

    def packets(self) -> int:
        """See `Measured`."""
        return self._packets

    def exchanges(self, count: int) -> float:
        """See `Measured`."""
        return accuracy_sockets.exchanges(self._over(0.0), count)

    def _over(self, rtt: float) -> accuracy_sockets.Connect:
        self.network.change(self.link(rtt))

        def connect() -> socket.socket:
            made = self.network.connect(self.port)
            made.settimeout(accuracy_sockets.PATIENCE)
            return made

        return connect

    def link(self, rtt: float) -> Link:
        """What is measured: trains of segments pass whole."""
        return Link(rtt)


class OneByOne(OverPackets):
    """The same with an effect that sees each packet, and harms none."""

    name: ClassVar[str] = "packets, one by one"

    def link(self, rtt: float) -> Link:
        """What is measured: trains are cut."""
        return Link(rtt, up=[Loss(0)], down=[Loss(0)])


class Simulation:
    """The simulated network: delays are virtual, what passes a second is not."""

    name: ClassVar[str] = "simulated"

    def echo(self, rtt: float, count: int) -> Sequence[float]:
        """See `Measured`; in virtual seconds."""
        network = SimulatedNetwork(Link(rtt))
        stream = network.connect(_Server, handshake=False)
        taken = []
        for _ in range(count):
            begun = network.clock.nanoseconds
            stream.send(b".")
            stream.read(1)
            taken.append((network.clock.nanoseconds - begun) / NANOSECONDS)
        return taken

    def bulk(self, size: int) -> float:
        """See `Measured`; in seconds of this machine."""
        stream = SimulatedNetwork(Link(0.0)).connect(lambda transport: _Server(transport, swallow=True))
        chunk = memoryview(bytes(CHUNK))
        begun = time.monotonic()
        while size:
            piece = chunk[: min(size, CHUNK)]
            stream.send(piece)
            size -= len(piece)
        stream.half_close()
        stream.read(1)
        return time.monotonic() - begun

    def packets(self) -> None:
        """See `Measured`."""

    def exchanges(self, count: int) -> float:
        """See `Measured`; on one connection, for there is nothing to overlap."""
        begun = time.monotonic()
        self.echo(0.0, count)
        return time.monotonic() - begun


class _Server:
    def __init__(self, transport: ServerTransport, *, swallow: bool = False) -> None:
        self._transport = transport
        self._swallow = swallow

    def data_received(self, data: bytes) -> None:
        if not self._swallow:
            self._transport.write(data)

    def eof_received(self) -> None:
        if self._swallow:
            self._transport.write(b".")
        self._transport.close()

    def connection_lost(self, error: ConnectionError | None) -> None:
        pass
