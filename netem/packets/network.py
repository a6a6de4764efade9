"""The packet network: real kernel TCP between two network namespaces, every packet through an emulator.

A client's side and a server's, each a machine of its own as far as TCP can tell: handshakes, slow start, delayed
acknowledgements and retransmission are the kernel's. Linux; as root, or as an ordinary user where the system lets him
make namespaces. Nothing is left behind: namespaces and all that runs in them end with the process that uses this.
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
"""The two sides."""
CONGESTION = "cubic"
"""The default of Linux, and not paced: with a paced one (BBR) flights have no edges and rounds are fractions."""


class Packets:
    """A link between two namespaces; use it as a context manager."""

    def __init__(self, link: Link, *, congestion: str = CONGESTION) -> None:
        self.link = link
        self.congestion = congestion
        self._broker: Channel | None = None
        self._emulator: Channel | None = None
        self._asking = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def client_address(self) -> str:
        """IPv4 address of the client's side."""
        return ADDRESSES[CLIENT]

    @property
    def server_address(self) -> str:
        """IPv4 address of the server's side."""
        return ADDRESSES[SERVER]

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""
        self.close()

    def start(self) -> None:
        """Make the namespaces and the link.

        Raises:
            Unavailable: not on this system, or not for this user.
            ValueError: an effect of the link has no meaning for packets.
        """
        if not sys.platform.startswith("linux"):
            raise Unavailable(f"no packet network here: network namespaces are Linux's, this is {sys.platform}")
        self.link.check_packets()
        self._broker, there = Channel.pair()
        # It finds this package where this process does. A session of its own: a terminal's ^C is not for it.
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
            self.close()  # first: it ends when nobody can ask any more
            raise PacketsError(f"the process of the network ended, status {process.wait()}") from error
        except BaseException:
            self.close()
            raise
        self._emulator = Channel.inherited(given[0])

    def close(self) -> None:
        """End what runs in it, and the namespaces. Twice is nothing."""
        for channel in (self._broker, self._emulator):
            if channel is not None:
                channel.close()
        self._broker = self._emulator = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def check(self) -> None:
        """Check that all is well."""
        with self._asking:
            self._check()

    # -- what is in it

    def make_socket(self, side: int, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """A new socket that lives on a side; it is this process's to use like any other."""
        _, (descriptor,) = self._ask(self._broker, "socket", side, int(family), int(kind))
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)

    def listen(self, port: int = 0) -> socket.socket:
        """A socket listening on the server's side.

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
        """A connection from the client's side to a port of the server's.

        Raises:
            OSError: nobody listens there.
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
        """Start a command on a side, as this user, in a session of its own; it ends with the network at the latest.

        `environment`: None for this process's as it was at `start`. `stdin`, `stdout`, `stderr`: open descriptors.

        Raises:
            OSError: there is no such command, or no such folder.
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
        """The number of TCP sockets that listen on a side; `besides`: the `pid` of commands whose sessions' are not
        counted."""
        number: int = self._ask(self._broker, "listening", side, list(besides))[0]
        return number

    def setting(self, name: str, value: str, *, side: int | None = None) -> None:
        """Set one of the kernel's settings of the network, like `net.ipv4.tcp_fastopen`, on one side or both.

        Raises:
            ValueError: its name does not begin with `net.`: it is the whole machine's.
            OSError: there is none, or it does not take the value.
        """
        for each in (CLIENT, SERVER) if side is None else (side,):
            self._ask(self._broker, "setting", each, name, value)

    # -- the link

    def change(self, link: Link) -> None:
        """Make it another link from now on. What is on the way comes out as it would have, and what was held for ever
        as if it were sent now.

        Raises:
            ValueError: an effect has no meaning for packets.
        """
        link.check_packets()
        self._ask(self._emulator, "change", link)
        self.link = link

    def take(self) -> Counts:
        """The counts since the last `take` (or the start), over all connections; a new operation begins."""
        return self._counts("take")

    def counts(self) -> Counts:
        """Return the counts so far, and go on counting."""
        return self._counts("counts")

    def lateness(self) -> float:
        """The seconds by which 99 in 100 packets came out late since the last `take`, at the most.

        With the time for which each may have lain unread. When it came the emulator knows no better than that, so a
        time in which it was kept from the processor counts for what it finds then, also where nothing was waiting.
        """
        return self._lateness("lateness")

    def least_lateness(self) -> float:
        """The same at the least: by how much they were let out after they were due."""
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
        with self._asking:  # an answer is for who asked, whatever other threads ask
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
            # Its children have the channels, and the kernel ends them only a moment later.
            raise PacketsError("the broker of the packet network failed")
        for channel, which in ((self._broker, "broker"), (self._emulator, "emulator")):
            if readable(channel):  # nobody speaks there unasked
                raise PacketsError(f"the {which} of the packet network failed")
