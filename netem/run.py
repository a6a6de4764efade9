"""Any client and any server across a link of packets, each in a namespace of its own: `netem run` and `netem meter`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from netem.counter import Counts
from netem.packets import CLIENT, SERVER, Lateness, Packets, Running

LISTENING = 15.0
"""Seconds servers may take until they listen."""
LOOK = 0.02
"""Seconds between looks at whether they do."""


class RunError(Exception):
    """A command could not be run across the link; the message is for its user."""


@dataclass(frozen=True)
class Crossed:
    """What a client did."""

    status: int
    """Its exit status; negative: the signal that ended it."""
    seconds: float
    """Wall time, from its start to its end."""
    counts: Counts
    lateness: Lateness


class Crossing:
    """Servers behind a link, for clients to be run before it."""

    def __init__(self, network: Packets, servers: Sequence[str], environment: Mapping[str, str]) -> None:
        """`servers`: commands as a shell user writes them (no shell runs them); `{server}` is their address."""
        self._network = network
        self._commands = [self._words(command) for command in servers]
        self._environment = dict(environment)
        self._servers: list[Running] = []

    def __enter__(self) -> Self:
        """Start network and servers, and wait until they listen."""
        self._network.start()
        try:
            for number, command in enumerate(self._commands, 1):
                self._servers.append(self._start(SERVER, command))
                self._wait(command, number)
        except BaseException:
            self._network.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End them."""
        self._network.close()

    def run(self, command: Sequence[str]) -> Crossed:
        """Run a client; `{server}` in its words is the servers' address.

        Raises:
            RunError: it could not be started.
            PacketsError: the network failed.
        """
        network = self._network
        network.take()
        begun = time.monotonic()
        running = self._start(CLIENT, [self._with_address(word) for word in command])
        try:
            status = running.wait()
        except OSError as error:
            raise RunError(f"{command[0]}: {error.strerror}") from error
        except BaseException:
            running.kill()
            raise
        seconds = time.monotonic() - begun
        lateness = network.lateness()
        return Crossed(status, seconds, network.take(), lateness)

    def _start(self, side: int, command: Sequence[str]) -> Running:
        return self._network.run(side, command, environment=self._environment)

    def _wait(self, command: Sequence[str], expected: int) -> None:
        server = self._servers[-1]
        end = time.monotonic() + LISTENING
        while self._network.listening(SERVER) < expected:
            if server.ended():
                try:
                    status = server.wait()
                except OSError as error:
                    raise RunError(f"the server {command[0]}: {error.strerror}") from error
                raise RunError(f"the server {shlex.join(command)} ended with status {status} before it listened")
            if time.monotonic() > end:
                raise RunError(f"the server {shlex.join(command)} does not listen after {LISTENING:g} s")
            time.sleep(LOOK)

    def _words(self, command: str) -> list[str]:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise RunError(f"the server {command!r}: {error}") from error
        if not words:
            raise RunError("an empty server command")
        return [self._with_address(word) for word in words]

    def _with_address(self, word: str) -> str:
        return word.replace("{server}", self._network.server_address)
