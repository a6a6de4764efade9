"""Where one tool is tried on one link: folders that are put back before each run, and its commands."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.compare.links import Done, Line
from bench.peers.base import CLIENT, OTHER, Peer
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import Workspace


class Place:
    """A site below a folder of its own. What a user's programs remember is below it too, and is put back with it."""

    def __init__(
        self,
        work: Workspace,
        folder: Path,
        peer: type[Peer],
        line: Line,
        path: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`path`: the folders of the tool's programs; `settings`: what else is in everybody's environment."""
        self.folder = folder / "live"
        self.served.mkdir(parents=True)
        self._kept = folder / "kept"
        self._line = line
        self._scheme = peer.label.rpartition(" ")[2]
        self._environments: dict[str, Mapping[str, str]] = {}
        for user in (CLIENT, OTHER, "server"):
            own = {"HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(self.folder / f"cache-{user}")}
            found = work.environment(user)
            self._environments[user] = (
                found | own | {"PATH": path} | dict(peer.settings(self.folder, path)) | dict(settings or {})
            )

    @property
    def served(self) -> Path:
        """What the server serves."""
        return self.folder / "served"

    def url(self, name: str) -> str:
        """The URL of what lies there below `served`, across the link."""
        return f"{self._scheme}{self._line.host}:{self._line.port}/{name}"

    def environment(self, user: str) -> Mapping[str, str]:
        """Of a user, or of the server."""
        return self._environments[user]

    def attempt(self, user: str, *command: str, folder: str | None = None) -> Done:
        """Run a user's command, whatever becomes of it."""
        return self._line.run(command, self.folder / (user if folder is None else folder), self._environments[user])

    def run(self, user: str, *command: str, folder: str | None = None) -> str:
        """What a user's command wrote.

        Raises:
            CommandError: it failed.
        """
        done = self.attempt(user, *command, folder=folder)
        if done.status:
            raise CommandError(f"{' '.join(command)}: status {done.status}: {done.stderr.strip()}")
        return done.stdout

    def keep(self, name: str) -> None:
        """What there is now can be put back."""
        shutil.copytree(self.folder, self._kept / name, symlinks=True)

    def put_back(self, name: str) -> None:
        """Begin anew with what was kept. A server's own folder stays: it may be where the server stands."""
        for folder in (self.folder, self.served):
            for each in folder.iterdir():
                if each == self.served:
                    continue
                if each.is_dir() and not each.is_symlink():
                    shutil.rmtree(each)
                else:
                    each.unlink()
        shutil.copytree(self._kept / name, self.folder, symlinks=True, dirs_exist_ok=True)

    def forget(self, name: str) -> None:
        """It is not put back any more."""
        shutil.rmtree(self._kept / name, ignore_errors=True)
