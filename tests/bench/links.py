"""The link of measurements: packets, which behave as TCP does, with one server behind them."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from certificates import Authority

from bench.process import MODULES
from bench.servers import Workspace, serving, until_it_listens, written
from netem.link import Link
from netem.packets.errors import PacketsError, Unavailable
from netem.packets.network import CLIENT, SERVER, Packets
from smartserver.cli.errors import CommandError

PORT = 4000
"""The port of a server in its own namespace, where every port is free."""


@dataclass(frozen=True)
class Done:
    status: int
    stdout: str
    stderr: str

    def check(self, command: Sequence[str]) -> Self:
        if self.status:
            raise CommandError(f"{' '.join(command)}: status {self.status}: {self.stderr.strip()}")
        return self


@contextmanager
def server(network: Packets, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Start a command on the server's side, in `folder`, and wait until it listens. It ends with the network."""
    others = network.listening(SERVER)
    with tempfile.TemporaryFile() as log, open(os.devnull, "rb") as nothing:
        running = network.run(
            SERVER, command, environment=environment, folder=str(folder),
            stdin=nothing.fileno(), stdout=log.fileno(), stderr=log.fileno(),
        )  # fmt: skip
        try:
            until_it_listens(lambda: network.listening(SERVER) > others, running.ended, " ".join(command[:4]), log)
            yield
        finally:
            running.close()


class Across:
    """A server of ours on the far side of packets, and commands on the near side; made by `across`."""

    def __init__(self, work: Workspace, network: Packets) -> None:
        self.network = network
        self._work = work

    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Done:
        """Run a client's command to its end."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(os.devnull, "rb") as nothing:
            running = self.network.run(
                CLIENT, command, environment=environment, folder=str(folder),
                stdin=nothing.fileno(), stdout=output.fileno(), stderr=errors.fileno(),
            )  # fmt: skip
            try:
                status = running.wait()
            finally:
                running.kill()
                running.close()
            return Done(status, written(output), written(errors))

    def git(self, folder: Path, environment: Mapping[str, str], *arguments: str) -> None:
        words = ["git", *arguments]
        self.run(words, folder, environment).check(words)

    def ask(self, module: str, *arguments: str) -> list[list[object]]:
        """Run a module of ours on the near side, and return the JSON that it prints."""
        words = [sys.executable, "-m", module, *arguments]
        done = self.run(words, self._work.folder, self._work.environment("asked") | dict(MODULES)).check(words)
        return json.loads(done.stdout)  # type: ignore[no-any-return]


@contextmanager
def agent(
    run: Callable[[Sequence[str], Path, Mapping[str, str]], object], environment: Mapping[str, str]
) -> Iterator[Mapping[str, str]]:
    """Yield the environment of a user with an agent, where commands are `run`; stop the agent at the end.

    The agent's folder is in /tmp, whatever TMPDIR says, because a socket needs a short path.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        settings = {"SMARTSERVER_AGENT": "1", "XDG_RUNTIME_DIR": folder}
        try:
            yield settings
        finally:
            run(["smartserver", "agent", "stop"], Path(folder), {**environment, **settings})


AUTHORITY = "authority.pem"
"""The file, in a workspace, with the certificate of the authority that signed its servers' certificates."""


def tls_options(work: Workspace, host: str) -> Sequence[str]:
    """Return the options with which a server offers TLS."""
    authority = Authority(work.folder)
    certificate, key = authority.sign(host)
    return ["--tls", str(certificate), "--tls-key", str(key)]


@contextmanager
def across(work: Workspace, link: Link) -> Iterator[Across]:
    """Start a link with a server of ours behind it."""
    served = work.folder / "served"
    served.mkdir(exist_ok=True)
    try:
        with Packets(link) as network:
            tls = tls_options(work, network.server_address)
            words = serving(served, network.server_address, PORT, "--fast-open", *tls)
            with server(network, words, work.folder, work.environment("server")):
                yield Across(work, network)
    except (Unavailable, PacketsError) as wrong:
        raise CommandError(str(wrong)) from wrong
