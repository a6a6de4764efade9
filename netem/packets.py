"""The packet network: real kernel TCP between two network namespaces, every packet through an emulator.

A client's side and a server's, each a machine of its own as far as TCP can tell: handshakes, slow start, delayed
acknowledgements and retransmission are the kernel's. Linux; as root, or as an ordinary user where the system lets him
make namespaces. Nothing is left behind: the namespaces go with their processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from netem.broker import ADDRESSES
from netem.channel import Channel
from netem.counter import Counts
from netem.link import Link

CLIENT, SERVER = 0, 1
"""The two sides."""
BACKENDS = ("tun", "veth")
"""Tried in this order: `tun` is faster by a half without trains, and needs a node that may be closed to users."""
CONGESTION = "cubic"
"""The default of Linux, and not paced: with a paced one (BBR) flights have no edges and rounds are fractions."""


class Unavailable(Exception):
    """There are no packet networks here; the message says why, for each way that was tried."""


class PacketsError(Exception):
    """A process of the network failed; what it measured is worth nothing."""


@dataclass(frozen=True)
class Lateness:
    """How much later than they should packets came out, in seconds: the emulator's own error."""

    median: float = 0.0
    p99: float = 0.0
    greatest: float = 0.0


class Running:
    """A command in a namespace."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        """The leader of its session and process group."""
        self._status = status
        self._ended: int | None = None

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self._status

    def ended(self) -> bool:
        """Whether it has ended, or could not be started: `wait` would return at once."""
        return self._ended is not None or bool(select.select([self._status], [], [], 0)[0])

    def wait(self) -> int:
        """Its exit status, negative the signal that ended it.

        Raises:
            OSError: it could not be started.
            PacketsError: the network was closed meanwhile.
        """
        if self._ended is None:
            text = os.read(self._status, 4096).decode()
            os.close(self._status)
            if not text:
                raise PacketsError("the network ended while a command ran in it")
            number, _, why = text.partition(" ")
            if why:
                raise OSError(int(number), why)
            self._ended = int(number)
        return self._ended

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Signal the command and all it started."""
        if self._ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


class Packets:
    """A link between two namespaces."""

    def __init__(self, link: Link, *, backend: str = "auto", congestion: str = CONGESTION) -> None:
        """`backend`: `tun`, `veth`, or `auto` for the first of them that works."""
        if backend not in ("auto", *BACKENDS):
            raise ValueError(f"no backend {backend!r}; there are auto, {', '.join(BACKENDS)}")
        self.link = link
        self.backend = backend
        """After `start` the one that is used."""
        self.congestion = congestion
        self._channel: Channel | None = None
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
        """
        if not sys.platform.startswith("linux"):
            raise Unavailable(f"no packet network: network namespaces are Linux's, this is {sys.platform}")
        tried = []
        for backend in BACKENDS if self.backend == "auto" else (self.backend,):
            why = self._start(backend)
            if why is None:
                self.backend = backend
                return
            tried.append(f"{backend}: {why}")
        raise Unavailable("no packet network here: " + "; ".join(tried))

    def _start(self, backend: str) -> OSError | None:
        here, there = Channel.pair()
        process = subprocess.Popen(
            [sys.executable, "-m", "netem.broker", str(there.fileno())], pass_fds=[there.fileno()]
        )
        there.close()
        self._channel, self._process = here, process
        try:
            here.send((self.link, backend, self.congestion))
            why, _ = here.receive()
        except (OSError, EOFError) as error:
            self.close()
            raise PacketsError(f"the process of the network ended, status {process.returncode}") from error
        if isinstance(why, OSError):
            self.close()
            return why
        return None

    def close(self) -> None:
        """End what runs in it, and the namespaces. Twice is nothing."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        if self._process is not None:
            self._process.wait()
            self._process = None

    def check(self) -> None:
        """Whether all is well.

        Raises:
            PacketsError: a process of the network failed.
        """
        if self._process is not None and self._process.poll() is not None:
            raise PacketsError(f"the process of the network ended, status {self._process.returncode}")

    # -- what is in it

    def make_socket(self, side: int, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """A new socket that lives on a side; it is this process's to use like any other."""
        _, (descriptor,) = self._ask("socket", side, int(family), int(kind))
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
    ) -> Running:
        """Start a command on a side, as this user, in a session of its own; it ends with the network at the latest.

        `stdin`, `stdout`, `stderr`: open descriptors.
        """
        ended, status = os.pipe()
        try:
            pid, _ = self._ask(
                "run",
                side,
                list(command),
                dict(os.environ if environment is None else environment),
                os.path.abspath(folder),
                descriptors=[stdin, stdout, stderr, status],
            )
        except BaseException:
            os.close(ended)
            raise
        finally:
            os.close(status)
        return Running(pid, ended)

    def listening(self, side: int) -> int:
        """How many TCP sockets listen on a side."""
        number: int = self._ask("listening", side)[0]
        return number

    def setting(self, name: str, value: str, *, side: int | None = None) -> None:
        """Set one of the kernel's settings, like `net.ipv4.tcp_fastopen`, on one side or both.

        Raises:
            OSError: there is none, or it does not take the value.
        """
        for each in (CLIENT, SERVER) if side is None else (side,):
            self._ask("setting", each, name, value)

    # -- counting

    def take(self) -> Counts:
        """The counts since the last `take` (or the start), over all connections; a new operation begins.

        Raises:
            PacketsError: a process of the network failed.
        """
        return self._counts("take")

    def counts(self) -> Counts:
        """The counts so far; nothing is begun anew."""
        return self._counts("counts")

    def lateness(self) -> Lateness:
        """Of the packets since the last `take`."""
        *_, late = self._ask("emulator", "counts")[0]
        return Lateness(*[nanoseconds / 1e9 for nanoseconds in late])

    def change(self, link: Link) -> None:
        """Make it another link from now on; what is on the way comes out as it would have. Not from trains to none."""
        if self.link.trains and not link.trains:
            raise ValueError("packets pass as trains on this link; start it with an effect that works on packets")
        self._ask("emulator", "change", link)
        self.link = link

    def _counts(self, question: str) -> Counts:
        answer, _ = self._ask("emulator", question)
        counts: Counts
        counts, up, down, _ = answer
        return replace(
            counts,
            packets_up=up.packets,
            packets_down=down.packets,
            dropped=up.dropped + down.dropped,
        )

    def _ask(self, question: str, *arguments: Any, descriptors: Sequence[int] = ()) -> tuple[Any, list[int]]:
        self.check()
        if self._channel is None:
            raise PacketsError("the network was not started, or is closed")
        try:
            self._channel.send((question, *arguments), descriptors)
            answer, given = self._channel.receive()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise PacketsError("a process of the network ended") from error
        if isinstance(answer, OSError):
            raise answer
        return answer, given
