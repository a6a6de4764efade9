"""The links tools are compared on: the proxy, which counts and keeps time, and packets, which add what TCP does.

Each has one server behind it, and an RTT that can be changed while it stands.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from bench.sides import client, server
from netem.counter import Counts
from netem.link import Link
from netem.packets.network import Packets
from netem.proxy import Proxy
from netem.timekeeping import Timekeeping
from smartserver.cli.servers import Workspace, attempt, free_port

Serve = Callable[[str, int], Sequence[str]]
"""From a host and a port to the command of a server that listens there."""

PORT = 4000
"""Of the server in a namespace of its own, where every port is free."""


@dataclass(frozen=True)
class Done:
    """What a client's command did."""

    status: int
    seconds: float
    stdout: str
    stderr: str
    late: float
    """By how many seconds the emulator was late."""


class Line(ABC):
    """A link with a server behind it; a context manager that stops both."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What it is, for a table."""
    lateness: ClassVar[str]
    """What `Done.late` is, for a table."""

    def __init__(self) -> None:
        self.host = ""
        """Where clients find the server."""
        self.port = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @abstractmethod
    def reserve(self) -> None:
        """Make the link, of RTT 0; `host` and `port` are known then.

        Raises:
            Unavailable: there is none of this kind here.
        """

    @abstractmethod
    def serve(self, work: Workspace, serve: Serve, environment: Mapping[str, str]) -> None:
        """Start the server and wait until it listens.

        Raises:
            CommandError: it does not.
        """

    @abstractmethod
    def change(self, rtt: float) -> None:
        """Another RTT from now on, in seconds."""

    @abstractmethod
    def take(self) -> Counts:
        """What passed since the last time."""

    @abstractmethod
    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Done:
        """Run a client's command to its end."""


class ProxyLine(Line):
    """Bytes pass a proxy on this machine."""

    name: ClassVar[str] = "proxy"
    about: ClassVar[str] = (
        "`netem proxy`: bytes and the handshake take their time, TCP's slow start and Nagle are not there"
    )
    lateness: ClassVar[str] = "no timer beside it was more than {late:.0f} ms late"

    def reserve(self) -> None:
        """Two ports: of the server, and of the proxy in front of it."""
        self._server = free_port()
        self._proxy = self._stack.enter_context(Proxy(0.0, ("127.0.0.1", self._server)))
        self.host, self.port = self._proxy.host, self._proxy.port

    def serve(self, work: Workspace, serve: Serve, environment: Mapping[str, str]) -> None:
        """On loopback."""
        work.serve(serve("127.0.0.1", self._server), self._server, environment)

    def change(self, rtt: float) -> None:
        """Of connections that are open, too."""
        self._proxy.change(Link(rtt))

    def take(self) -> Counts:
        """What the proxy counted."""
        return self._proxy.take()

    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Done:
        """Beside the proxy."""
        with Timekeeping() as kept:
            begun = time.monotonic()
            done = attempt(command, folder, environment)
            seconds = time.monotonic() - begun
        return Done(done.returncode, seconds, done.stdout, done.stderr, kept.late)


class PacketLine(Line):
    """Packets pass an emulator between two namespaces."""

    name: ClassVar[str] = "packets"
    about: ClassVar[str] = "`netem run`: real TCP of the kernel, with its slow start (cubic, 10 segments) and Nagle"
    lateness: ClassVar[str] = (
        "of each run 99 in 100 packets were let out no more than {late:.0f} ms after they were due, "
        "and how long they lay unread is not in that"
    )

    def reserve(self) -> None:
        """Two namespaces."""
        self._network = self._stack.enter_context(Packets(Link(0.0)))
        self.host, self.port = self._network.server_address, PORT

    def serve(self, work: Workspace, serve: Serve, environment: Mapping[str, str]) -> None:
        """In the server's namespace."""
        running = server(self._network, serve(self.host, self.port), work.folder, environment)
        self._stack.enter_context(running)

    def change(self, rtt: float) -> None:
        """Of packets sent from now on."""
        self._network.change(Link(rtt))

    def take(self) -> Counts:
        """What the emulator counted."""
        return self._network.take()

    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Done:
        """In the client's namespace."""
        with client(self._network, command, folder, environment) as running:
            ended = running.wait()
        return Done(ended.status, ended.seconds, ended.output, ended.errors, self._network.least_lateness().p99)


LINES: tuple[type[Line], ...] = (ProxyLine, PacketLine)
