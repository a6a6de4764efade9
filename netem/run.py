"""Any client and any server across a link of packets, each in a namespace of its own: what `netem run` does."""

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
"""Seconds a server may take until it listens."""
WAITING = 5.0
"""Seconds after which it is said what is waited for."""
LOOK = 0.01
"""Seconds between looks at whether it does: the kernel tells nobody."""

TOLD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a client is told of."""


class RunError(Exception):
    """A command could not be run across the link; the message is for its user."""


@dataclass(frozen=True)
class RunResult:
    """The outcome of a client's run."""

    status: int
    """Its exit status; negative: the signal that ended it."""
    seconds: float
    """Wall time, from its start to its end."""
    counts: Counts
    lateness: float = 0.0
    """The lateness of packets, at the most: see `Packets.lateness`."""
    least_lateness: float = 0.0
    """At the least."""


class Crossing:
    """Servers behind a link, for clients to be run before it; use it as a context manager."""

    def __init__(
        self,
        network: Packets,
        servers: Sequence[str],
        settings: Sequence[tuple[str, str]] = (),
        *,
        on_waiting: Callable[[str], None] | None = None,
    ) -> None:
        """`servers`: commands as a shell user writes them (no shell runs them); `{server}` is their address.

        `settings`: of the kernel's, and what they are to be on both sides before a server starts.
        `on_waiting`: told, in a line for people, when a server takes long to listen.

        Raises:
            RunError: one is no command.
        """
        self.network = network
        self.running: Command | None = None
        """The client, while there is one."""
        self._commands = [self._words(command) for command in servers]
        self._settings = settings
        self._on_waiting = on_waiting
        self._servers: list[int] = []
        """The sessions of those that listen."""

    def __enter__(self) -> Self:
        """Start network and servers, one after the other, and wait until each listens.

        Raises:
            RunError: one does not, or there is no such setting.
            Unavailable: there are no packet networks here.
            ValueError: an effect of its link has no meaning for packets.
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
        """End them."""
        self.network.close()

    def run(self, command: Sequence[str], *, stdout: int = 1) -> RunResult:
        """Run a client; `{server}` in its words is the servers' address, `stdout` an open descriptor.

        Raises:
            RunError: it could not be started.
        """
        words = [self._with_address(word) for word in command]
        self.network.take()
        begun = time.monotonic()
        # A signal finds either no client, or one that it can be passed on to.
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
        """Start a server, and wait until one more socket listens that no earlier server's session holds.

        What it prints goes to standard error.
        """
        before = self.network.listening(SERVER, besides=self._servers)
        server = self._start(SERVER, command, 2)
        try:
            begun = time.monotonic()
            tell = self._on_waiting
            while self.network.listening(SERVER, besides=self._servers) <= before:
                # One that ended well may have left a daemon behind.
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
