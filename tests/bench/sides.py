"""Commands on the two sides of a network of packets: a server that listens, and a client that is run to its end."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from netem.packets.command import Command
from netem.packets.network import CLIENT, SERVER, Packets
from smartserver.cli.servers import until_it_listens, written


@dataclass(frozen=True, slots=True)
class Ended:
    """What a client's command did."""

    status: int
    seconds: float
    """Wall time, from its start to its end."""
    output: str
    errors: str


class Client:
    """A client's command that runs; made by `client`."""

    def __init__(self, command: Command, begun: float, output: IO[bytes], errors: IO[bytes]) -> None:
        self.pid = command.pid
        self._command = command
        self._begun = begun
        self._output = output
        self._errors = errors

    def wait(self) -> Ended:
        """Wait for its end."""
        status = self._command.wait()
        seconds = time.monotonic() - self._begun
        return Ended(status, seconds, written(self._output), written(self._errors))


@contextmanager
def client(network: Packets, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Client]:
    """Start a command on the client's side, in `folder`; it ends with the context at the latest."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(os.devnull, "rb") as nothing:
        begun = time.monotonic()
        running = network.run(
            CLIENT, command, environment=environment, folder=str(folder),
            stdin=nothing.fileno(), stdout=output.fileno(), stderr=errors.fileno(),
        )  # fmt: skip
        try:
            yield Client(running, begun, output, errors)
        finally:
            running.kill()
            running.close()


@contextmanager
def server(network: Packets, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Command]:
    """Start a command on the server's side, in `folder`, and wait until it listens; it ends with the network.

    Raises:
        CommandError: it does not.
    """
    with tempfile.TemporaryFile() as log, open(os.devnull, "rb") as nothing:
        running = network.run(
            SERVER, command, environment=environment, folder=str(folder),
            stdin=nothing.fileno(), stdout=log.fileno(), stderr=log.fileno(),
        )  # fmt: skip
        try:
            until_it_listens(lambda: network.listening(SERVER) > 0, running.ended, " ".join(command[:4]), log)
            yield running
        finally:
            running.close()
