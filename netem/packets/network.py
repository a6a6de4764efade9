"""The packet network: real kernel TCP between two network namespaces, with an emulator that passes on every packet.

The client's side and the server's side are separate machines for TCP: handshakes, slow start, delayed acknowledgements
and retransmission are the kernel's. It needs Linux, and root or an ordinary user who may make namespaces. Nothing is
left behind: the namespaces and their processes end with the process that uses this.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from netem.counter import Counts
from netem.link import Link
from netem.packets.channel import Channel
from netem.packets.command import Command, readable
from netem.packets.devices import ADDRESSES
from netem.packets.errors import PacketsError, Unavailable
from netem.units import NANOSECONDS

CLIENT, SERVER = 0, 1
"""The numbers of the two sides."""
CONGESTION = "cubic"
"""The default congestion control, as in Linux. It sends without pacing. With paced congestion control (BBR), counted
round trips are fractions."""


class Packets:
    """A network of two namespaces joined by a link; use it as a context manager."""

    def __init__(self, link: Link, *, congestion: str = CONGESTION) -> None:
        self.link = link
        self.congestion = congestion
        self._broker: Channel | None = None
        self._emulator: Channel | None = None
        self._asking = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def client_address(self) -> str:
        """The IPv4 address of the client's side."""
        return ADDRESSES[CLIENT]

    @property
    def server_address(self) -> str:
        """The IPv4 address of the server's side."""
        return ADDRESSES[SERVER]

    def __enter__(self) -> Self:
        """Start the network."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the network."""
        self.close()

    def start(self) -> None:
        """Create the namespaces and the link.

        Raises:
            Unavailable: this system, or this user, has no packet networks.
            ValueError: an effect of the link is impossible for packets.
        """
        if not sys.platform.startswith("linux"):
            raise Unavailable(f"packet networks need Linux, this is {sys.platform}")
        self.link.check_packets()
        self._broker, there = Channel.pair()
        # Pass `sys.path`, so that it finds this package. Use a new session, so that a terminal's ^C does not end it.
        start = f"import sys; sys.path[:] = {sys.path!r}; from netem.packets.broker import main; main({there.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", start], pass_fds=[there.fileno()], start_new_session=True
        )
        there.close()
        try:
            self._broker.send((self.link, self.congestion))
            answer, given = self._broker.receive()
            if isinstance(answer, Unavailable):
                raise answer
        except (OSError, EOFError) as error:
            process = self._process
            self.close()  # first, since the process ends when its channel is closed
            raise PacketsError(f"the process of the network ended, status {process.wait()}") from error
        except BaseException:
            self.close()
            raise
        self._emulator = Channel.inherited(given[0])

    def close(self) -> None:
        """End all processes in the network, and the namespaces. Closing twice is harmless."""
        for channel in (self._broker, self._emulator):
            if channel is not None:
                channel.close()
        self._broker = self._emulator = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def check(self) -> None:
        """Raise `PacketsError` if the network is closed, or one of its processes failed."""
        with self._asking:
            self._check()

    # -- sockets and commands

    def make_socket(self, side: int, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Return a new socket on one side. This process uses it like any other socket."""
        _, (descriptor,) = self._ask(self._broker, "socket", side, int(family), int(kind))
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)

    def listen(self, port: int = 0) -> socket.socket:
        """Return a socket that listens on the server's side.

        Raises:
            OSError: the port is taken.
        """
        listener = self.make_socket(SERVER)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.server_address, port))
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
        return listener

    def connect(self, port: int) -> socket.socket:
        """Return a connection from the client's side to a port of the server's side.

        Raises:
            OSError: no socket listens on that port.
        """
        client = self.make_socket(CLIENT)
        try:
            client.connect((self.server_address, port))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            client.close()
            raise
        return client

    def run(
        self,
        side: int,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str = ".",
        stdin: int = 0,
        stdout: int = 1,
        stderr: int = 2,
    ) -> Command:
        """Start a command on a side, as this user, in a session of its own. The end of the network kills it.

        `environment`: None for the environment of this process at `start`. `stdin`, `stdout`, `stderr`: open
        descriptors.

        Raises:
            OSError: the command or the folder does not exist.
        """
        ended, status = os.pipe()
        try:
            pid, _ = self._ask(
                self._broker, "run", side, list(command), None if environment is None else dict(environment),
                os.path.abspath(folder), descriptors=[stdin, stdout, stderr, status],
            )  # fmt: skip
        except BaseException:
            os.close(ended)
            raise
        finally:
            os.close(status)
        return Command(pid, ended)

    def listening(self, side: int, *, besides: Sequence[int] = ()) -> int:
        """Return the number of TCP sockets that listen on a side. `besides`: the `pid` of commands; sockets in their
        sessions are not counted."""
        number: int = self._ask(self._broker, "listening", side, list(besides))[0]
        return number

    def setting(self, name: str, value: str, *, side: int | None = None) -> None:
        """Set one of the kernel's settings of the network, like `net.ipv4.tcp_fastopen`, on one side or both.

        Raises:
            ValueError: the name does not begin with `net.`, so it is a setting of the whole machine.
            OSError: the setting does not exist, or refuses the value.
        """
        for each in (CLIENT, SERVER) if side is None else (side,):
            self._ask(self._broker, "setting", each, name, value)

    # -- the link

    def change(self, link: Link) -> None:
        """Replace the link from now on. Packets in transit are delivered as before; packets that were held for ever are
        sent again.

        Raises:
            ValueError: an effect is impossible for packets.
        """
        link.check_packets()
        self._ask(self._emulator, "change", link)
        self.link = link

    def take(self) -> Counts:
        """Return the counts of all connections since the last `take` or the start, and begin a new operation."""
        return self._counts("take")

    def counts(self) -> Counts:
        """Return the counts so far without resetting them."""
        return self._counts("counts")

    def lateness(self) -> float:
        """Return an upper bound in seconds of the lateness of 99 in 100 packets since the last `take`.

        The bound includes the time that each packet may have waited unread, because the emulator does not know when a
        packet arrived. If the emulator was not scheduled for some time, all packets that it reads afterwards are
        counted as that late.
        """
        return self._lateness("lateness")

    def least_lateness(self) -> float:
        """Return a lower bound of the same lateness in seconds: the time from due time to output alone."""
        return self._lateness("least_lateness")

    def _lateness(self, question: str) -> float:
        nanoseconds: float = self._ask(self._emulator, question)[0]
        return nanoseconds / NANOSECONDS

    def _counts(self, question: str) -> Counts:
        counts: Counts
        counts, up, down = self._ask(self._emulator, question)[0]
        return replace(counts, packets_up=up.packets, packets_down=down.packets, dropped=up.dropped + down.dropped)

    def _ask(
        self, whom: Channel | None, question: str, *arguments: Any, descriptors: Sequence[int] = ()
    ) -> tuple[Any, list[int]]:
        with self._asking:  # one request at a time, so that each thread gets its own answer
            self._check()
            assert whom is not None
            try:
                return whom.ask(question, *arguments, descriptors=descriptors)
            except EOFError as error:
                raise PacketsError("a process of the packet network failed") from error

    def _check(self) -> None:
        if self._broker is None or self._emulator is None:
            raise PacketsError("the network was not started, or is closed")
        if self._process is not None and self._process.poll() is not None:
            # The channels look open, since the broker's children have them until the kernel kills them a moment later.
            raise PacketsError("the broker of the packet network failed")
        for channel, which in ((self._broker, "broker"), (self._emulator, "emulator")):
            if readable(channel):  # there is no message without a request, so the other end is closed
                raise PacketsError(f"the {which} of the packet network failed")
