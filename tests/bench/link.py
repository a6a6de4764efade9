"""Our server across a link of real TCP (`netem.packets`), for the measurements that need one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.process import MODULES, Cost, Watch
from bench.sides import client, server
from netem.link import Link
from netem.packets.errors import PacketsError, Unavailable
from netem.packets.network import Packets
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import Workspace

PORT = 4155


class Across:
    """A server on the far side of a link, and commands on the near one; made by `across`."""

    def __init__(self, work: Workspace, network: Packets, server: int) -> None:
        self.network = network
        self.server = server
        """The process of the server."""
        self._work = work

    def url(self, name: str) -> str:
        """The URL of a repository."""
        return f"hpss://{self.network.server_address}:{PORT}/{name}"

    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[float, Cost, str]:
        """Run a command on the near side: seconds, what it cost, and what it wrote.

        Raises:
            CommandError: it failed.
        """
        with client(self.network, command, folder, environment) as running, Watch(running.pid) as watch:
            ended = running.wait()
        if ended.status:
            raise CommandError(f"{' '.join(command)}: status {ended.status}: {ended.errors.strip()}")
        return ended.seconds, watch.cost, ended.output

    def git(self, folder: Path, environment: Mapping[str, str], *arguments: str) -> tuple[float, Cost]:
        """Run git."""
        return self.run(["git", *arguments], folder, environment)[:2]

    def ask(self, module: str, *arguments: str) -> list[list[object]]:
        """Run a module of ours, and read the JSON it prints."""
        words = [sys.executable, "-m", module, *arguments]
        environment = self._work.environment("asked") | dict(MODULES)
        return json.loads(self.run(words, self._work.folder, environment)[2])  # type: ignore[no-any-return]


@contextmanager
def across(work: Workspace, link: Link, settings: Sequence[tuple[str, str]] = ()) -> Iterator[Across]:
    """Start a link with a server behind it; `settings` of the kernel's are set on both sides first.

    Raises:
        CommandError: there can be none here, or the server does not start.
    """
    served = work.folder / "served"
    served.mkdir(exist_ok=True)
    try:
        with Packets(link) as network:
            for name, value in settings:
                network.setting(name, value)
            words = [sys.executable, "-m", "smartserver.cli.main", "serve", str(served), "--anonymous", "write"]
            where = ["--listen", f"{network.server_address}:{PORT}", "--fast-open"]
            with server(network, [*words, *where], work.folder, work.environment("server")) as running:
                yield Across(work, network, running.pid)
    except (Unavailable, PacketsError) as wrong:
        raise CommandError(str(wrong)) from wrong
