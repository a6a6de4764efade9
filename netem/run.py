"""Run any client and server across a link of packets, each in a namespace of its own, for `netem run`."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from netem.counter import Counts
from netem.packets.command import Command
from netem.packets.network import CLIENT, SERVER, Packets
from netem.units import show_status

LISTENING = 15.0
"""Timeout in seconds for a server to listen."""
WAITING = 5.0
"""Seconds after which the user is told that a server does not listen yet."""
LOOK = 0.01
"""Seconds between two checks whether a server listens, for which the kernel has no notification."""

TOLD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that are passed on to a client."""


class RunError(Exception):
    """A command could not be run across the link. The message is for the user."""


@dataclass(frozen=True)
class RunResult:
    """The outcome of a client's run."""

    status: int
    """The client's exit status; if negative, the number of the signal that ended it."""
    seconds: float
    """The wall time from the client's start to its end, in seconds."""
    counts: Counts
    lateness: float = 0.0
    """The value of `Packets.lateness` in seconds."""
    least_lateness: float = 0.0
    """The value of `Packets.least_lateness` in seconds."""


class Crossing:
    """Runs servers on one side of a link, and clients on the other side; use it as a context manager."""

    def __init__(
        self,
        network: Packets,
        servers: Sequence[str],
        settings: Sequence[tuple[str, str]] = (),
        *,
        on_waiting: Callable[[str], None] | None = None,
    ) -> None:
        """`servers`: commands in the syntax of a shell, but run without a shell; `{server}` is replaced by their
        address.

        `settings`: names and values of kernel settings, set on both sides before a server starts. `on_waiting`: called
        with a line for the user if a server takes long to listen.

        Raises:
            RunError: an item of `servers` is not a command.
        """
        self.network = network
        self.running: Command | None = None
        """The running client; None if none runs."""
        self._commands = [self._words(command) for command in servers]
        self._settings = settings
        self._on_waiting = on_waiting
        self._servers: list[int] = []
        """The session ids of the servers that listen."""

    def __enter__(self) -> Self:
        """Start the network and the servers, one after the other, and wait until each server listens.

        Raises:
            RunError: a server does not listen, or a setting is refused.
            Unavailable: the system has no packet networks.
            ValueError: an effect of the link is impossible for packets.
        """
        self.network.start()
        self._servers.clear()
        try:
            for name, value in self._settings:
                self._set(name, value)
            for command in self._commands:
                self._serve(command)
        except BaseException:
            self.network.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the servers and the network."""
        self.network.close()

    def run(self, command: Sequence[str], *, stdout: int = 1) -> RunResult:
        """Run a client to its end. `{server}` in its words is replaced by the servers' address; `stdout` is an open
        descriptor.

        Raises:
            RunError: the client could not be started.
        """
        words = [self._with_address(word) for word in command]
        self.network.take()
        begun = time.monotonic()
        # Block signals until `running` is set, so that a handler passes each signal on to a client that has started.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
        try:
            self.running = self._start(CLIENT, words, stdout)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            status = self.running.wait()
        except BaseException:
            self.running.kill()
            raise
        finally:
            self.running.close()
            self.running = None
        seconds = time.monotonic() - begun
        lateness, least = self.network.lateness(), self.network.least_lateness()
        return RunResult(status, seconds, self.network.take(), lateness, least)

    def _start(self, side: int, command: Sequence[str], stdout: int) -> Command:
        try:
            return self.network.run(side, command, stdout=stdout)
        except OSError as error:
            raise RunError(f"{command[0]}: {error.strerror}") from error
        except ValueError as error:
            raise RunError(f"{command[0]}: {error}") from error

    def _set(self, name: str, value: str) -> None:
        try:
            self.network.setting(name, value)
        except OSError as error:
            raise RunError(f"the setting {name} cannot be {value!r}: {error.strerror}") from error
        except ValueError as error:
            raise RunError(str(error)) from error

    def _serve(self, command: Sequence[str]) -> None:
        """Start a server. Wait until a listening socket appears that belongs to no earlier server's session.

        Its standard output is written to standard error.
        """
        before = self.network.listening(SERVER, besides=self._servers)
        server = self._start(SERVER, command, 2)
        try:
            begun = time.monotonic()
            tell = self._on_waiting
            while self.network.listening(SERVER, besides=self._servers) <= before:
                # A server that ended with status 0 may have started a daemon.
                if server.ended() and (status := server.wait()):
                    raise RunError(
                        f"the server {shlex.join(command)} ended with {show_status(status)} before it listened"
                    )
                waited = time.monotonic() - begun
                if waited > WAITING and tell is not None:
                    tell(f"waiting for the server {shlex.join(command)} to listen on a TCP port")
                    tell = None
                if waited > LISTENING:
                    raise RunError(
                        f"the server {shlex.join(command)} does not listen on a TCP port after {LISTENING:g} s"
                    )
                time.sleep(LOOK)
        finally:
            server.close()
        self._servers.append(server.pid)

    def _words(self, command: str) -> list[str]:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise RunError(f"the server {command!r}: {error}") from error
        if not words:
            raise RunError("an empty server command")
        return [self._with_address(word) for word in words]

    def _with_address(self, word: str) -> str:
        return word.replace("{server}", self.network.server_address)
