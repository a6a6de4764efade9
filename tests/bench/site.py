"""The site where a command is measured: a served folder behind a link, and a user, reset before each run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.links import Done, ProxyLine
from bench.servers import Workspace

CLIENT = "client"
"""The user's name, and the folder of its clones."""


def wrongs(status: int | None, says: str, ended: int, said: str) -> Iterator[str]:
    """Yield each error in the status and the output of a command that had to end with `status` (None: any but 0)."""
    if ended != status if status is not None else ended == 0:
        lines = said.strip().splitlines() or [""]
        first = next((line for line in lines if "ERROR" in line), lines[-1])
        yield f"status {ended}, expected {'a refusal' if status is None else status}: {first}"
    elif says not in said:
        yield f"expected {says!r}, it said: {said.strip()}"


class Place:
    """A site in a folder of its own, which also has all that a user's programs remember of remotes."""

    def __init__(
        self, work: Workspace, folder: Path, line: ProxyLine, scheme: str, settings: Mapping[str, str]
    ) -> None:
        """`scheme`: the beginning of each URL; `settings`: variables in every environment."""
        self.folder = folder / "live"
        self.served.mkdir(parents=True)
        self._kept = folder / "kept"
        self._line = line
        self._scheme = scheme
        self._environments: dict[str, Mapping[str, str]] = {}
        for user in (CLIENT, "server"):
            own = {"HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(self.folder / f"cache-{user}")}
            self._environments[user] = work.environment(user) | own | dict(settings)

    @property
    def served(self) -> Path:
        return self.folder / "served"

    def url(self, name: str) -> str:
        """Return the URL of a repository below `served`, across the link."""
        return f"{self._scheme}{self._line.host}:{self._line.port}/{name}"

    def environment(self, user: str) -> Mapping[str, str]:
        """Return the environment of a user or of the server."""
        return self._environments[user]

    def attempt(self, user: str, *command: str, folder: str | None = None) -> Done:
        """Run a command as a user, and return its result even if it failed."""
        return self._line.run(command, self.folder / (user if folder is None else folder), self._environments[user])

    def run(self, user: str, *command: str, folder: str | None = None) -> str:
        return self.attempt(user, *command, folder=folder).check(command).stdout

    def keep(self, name: str) -> None:
        shutil.copytree(self.folder, self._kept / name, symlinks=True)

    def put_back(self, name: str) -> None:
        """Reset the site to a kept state. A server's own folder stays: the server may run in it."""
        for folder in (self.folder, self.served):
            for each in folder.iterdir():
                if each == self.served:
                    continue
                if each.is_dir() and not each.is_symlink():
                    shutil.rmtree(each)
                else:
                    each.unlink()
        shutil.copytree(self._kept / name, self.folder, symlinks=True, dirs_exist_ok=True)
