"""The two sides: stock Breezy and `brz serve`, and Breezy with our plugin and `smartserver serve`.

Both start alike: on the server a repository `project` with the branches `trunk` and `old`; on the user's side pieces,
folders of which each command gets a fresh copy. The tips of branches are read off the disk, and not asked from the
server.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bench.breezy import (
    BRZ,
    WITHOUT_PLUGIN,
    last_revision,
    plugin_at,
    serve_options,
    settings,
    stored,
    stored_tip,
)  # fmt: skip
from bench.links import Done, ProxyLine
from bench.servers import Workspace, serving
from smartserver.cli.errors import CommandError

BEHIND = 10
"""Revisions of the main line that `old`, `behind` and `stale` lack."""

BACK = f"-{BEHIND + 1}"
"""The newest revision that they have, as brz's users name it."""

AUTHOR = "User <user@example.org>"
"""The committer: a person whom the history does not know, so that only his own revisions can be signed by him."""

SIGNING = '''"""Signs without keys, as Breezy's own tests do."""

from breezy import gpg

gpg.GPGStrategy = gpg.LoopbackGPGStrategy
'''
"""A plugin of both sides, in place of GnuPG, which would need keys and a Python module that is not on PyPI."""

EMPTY = "empty"
"""The piece for a command that needs none."""


CLIENT = "client"
"""The user's name, and the folder of its clones."""


class Place:
    """A served folder behind a link, and a user, reset before each run. Its folder also has all that a user's programs
    remember of remotes."""

    def __init__(
        self, work: Workspace, folder: Path, line: ProxyLine, scheme: str, settings: Mapping[str, str]
    ) -> None:
        """`scheme`: the beginning of each URL; `settings`: variables in every environment."""
        self.folder = folder / "live"
        self.served = self.folder / "served"
        self.served.mkdir(parents=True)
        self._kept = folder / "kept"
        self._line = line
        self._scheme = scheme
        self.environments: dict[str, Mapping[str, str]] = {}
        """Those of the user and of the server."""
        for user in (CLIENT, "server"):
            own = {"HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(self.folder / f"cache-{user}")}
            self.environments[user] = work.environment(user) | own | dict(settings)

    def url(self, name: str) -> str:
        """Return the URL of a repository below `served`, across the link."""
        return f"{self._scheme}{self._line.host}:{self._line.port}/{name}"

    def attempt(self, *command: str, folder: str) -> Done:
        """Run a command as the user, in a folder below the user's own, and return its result even if it failed."""
        return self._line.run(command, self.folder / CLIENT / folder, self.environments[CLIENT])

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


class Side:
    """One of the two sides; its figures are a column."""

    name: ClassVar[str]
    label: ClassVar[str]
    """The scheme with which its URLs begin."""

    def __init__(self, site: Place, fixtures: Path, pieces: Path, wanted: Collection[str]) -> None:
        """`pieces`: the folder of the pieces, out of the way of a server; `wanted`: the pieces to make."""
        self.place = site
        self.fixtures = fixtures
        self.pieces = pieces
        self.wanted = wanted
        self.file = ""
        """The file on which commands are tried: the largest at the root of the tree."""
        self.lacks: dict[str, str] = {}
        """The pieces that could not be made, each with the reason."""

    @classmethod
    def settings(cls, folder: Path) -> Mapping[str, str]:
        return {**settings(folder), "BRZ_EMAIL": AUTHOR}

    @classmethod
    def plugins(cls, signing: Path) -> Mapping[str, str]:
        """Return the environment that says which plugins are loaded."""
        return {"BRZ_PLUGINS_AT": f"ratchet_signing@{signing}"}

    def server(self, host: str, port: int) -> Sequence[str]:
        """Return the command that serves the site."""
        return *BRZ, *serve_options(self.place.served, host, port)

    def brz(self, *words: str, folder: str = "") -> str:
        """Run a command as the user, in a folder below his own, and return its output."""
        command = [*BRZ, *words]
        return self.place.attempt(*command, folder=folder).check(command).stdout

    def home(self, folder: str = "") -> Path:
        """Return the user's folder, or a folder below it."""
        return self.place.folder / CLIENT / folder

    # -- the beginning

    def begin(self) -> None:
        """Put the history on the server, in the way of this side."""
        shutil.copytree(self.fixtures / "brz", self.place.served / "project", symlinks=True)

    def fill(self) -> None:
        """Make the server's branches, and the wanted pieces of the user."""
        self.home().mkdir()
        self.begin()
        self.brz("branch", "--quiet", self.place.url("project/trunk"), "mine")
        files = [each for each in self.home("mine").iterdir() if each.is_file() and not each.is_symlink()]
        if not files:
            raise CommandError("the history has no file at the root of its tree")
        self.file = max(files, key=lambda each: (each.stat().st_size, each.name)).name
        self.brz("branch", "--quiet", "-r", BACK, "mine", "behind")
        self.brz("push", "--quiet", "-d", "behind", self.place.url("project/old"))
        self.home(EMPTY).mkdir()
        for name in self.wanted:
            try:
                self.make(name)
            except CommandError as wrong:
                self.lacks[name] = str(wrong)
        self.home().rename(self.pieces)
        self.home().mkdir()

    def make(self, piece: str) -> None:
        trunk = self.place.url("project/trunk")
        match piece:
            case "ahead":
                self.copy("mine", piece)
                self.commit(piece, "one more")
                self.commit(piece, "and one more")
            case "diverged":
                self.copy("behind", piece)
                (self.home(piece) / "a-new-file").write_text("new\n", encoding="utf-8")  # No conflict for a merge.
                self.brz("add", "--quiet", "a-new-file", folder=piece)
                self.brz("commit", "--quiet", "--message", piece, folder=piece)
            case "bound":
                self.brz("checkout", "--quiet", trunk, piece)
                self.edit(piece, "edited")
            case "stale":
                self.brz("checkout", "--quiet", "-r", BACK, trunk, piece)
            case "light":
                self.brz("checkout", "--quiet", "--lightweight", trunk, piece)
                self.edit(piece, "edited")
            case "shared":
                self.brz("init-shared-repository", "--quiet", piece)
                self.brz("branch", "--quiet", "behind", f"{piece}/old")

    def copy(self, piece: str, other: str) -> None:
        shutil.copytree(self.home(piece), self.home(other), symlinks=True)

    def take(self, piece: str) -> None:
        """Give the user this piece."""
        shutil.copytree(self.pieces / piece, self.home(piece), symlinks=True)

    def edit(self, folder: str, what: str) -> None:
        with (self.home(folder) / self.file).open("a", encoding="utf-8") as file:
            file.write(f"{what}\n" * 20)

    def commit(self, folder: str, what: str) -> None:
        self.edit(folder, what)
        self.brz("commit", "--quiet", "--message", what, folder=folder)

    # -- where things are

    def there(self, branch: str) -> str:
        """Return revno and tip of a branch on the server, by the path of its URL; empty if there is none."""
        return last_revision(self.place.served / branch)

    def mine(self, folder: str) -> str:
        return last_revision(self.home(folder))

    def has_repository(self, path: str) -> bool:
        return (self.place.served / path / ".bzr" / "repository").exists()

    def packs(self) -> int:
        return len(list((self.place.served / "project" / ".bzr" / "repository" / "packs").iterdir()))

    def tagged(self, branch: str, tag: str) -> bool:
        place = self.place.served / branch / ".bzr" / "branch" / "tags"
        return f"{len(tag)}:{tag}".encode() in (place.read_bytes() if place.exists() else b"")

    def configuration(self, branch: str) -> str:
        return (self.place.served / branch / ".bzr" / "branch" / "branch.conf").read_text(encoding="utf-8")


class Stock(Side):
    name: ClassVar[str] = "stock"
    label: ClassVar[str] = "bzr://"

    @classmethod
    def plugins(cls, signing: Path) -> Mapping[str, str]:
        return {**super().plugins(signing), **WITHOUT_PLUGIN}


class Plugin(Side):
    name: ClassVar[str] = "ours"
    label: ClassVar[str] = "hpss://"

    @classmethod
    def plugins(cls, signing: Path) -> Mapping[str, str]:
        """Return the environment that loads our plugin from here: it need not be installed beside Breezy."""
        plugins = super().plugins(signing)
        return {"BRZ_PLUGINS_AT": f"{plugins['BRZ_PLUGINS_AT']}:{plugin_at()}"}

    def server(self, host: str, port: int) -> Sequence[str]:
        return serving(self.place.served, host, port)

    def begin(self) -> None:
        """Push the history; that makes the repository."""
        self.brz("init-shared-repository", "--quiet", self.place.url("project"))
        self.brz("push", "--quiet", "-d", str(self.fixtures / "brz" / "trunk"), self.place.url("project/trunk"))

    def there(self, branch: str) -> str:
        return stored_tip(self.place.served, branch)

    def has_repository(self, path: str) -> bool:
        return stored(self.place.served, path)[0].exists()

    def packs(self) -> int:
        return len(stored(self.place.served, "project")[0].snapshot().packs)

    def _entries(self, of: str, branch: str) -> Mapping[bytes, bytes]:
        """Return the entries of a map that belong to a branch."""
        repository, name = stored(self.place.served, branch)
        entries = dict(repository.snapshot().state.map(of).items())
        return {key.partition(b"\0")[2]: value for key, value in entries.items() if key.startswith(name + b"\0")}

    def tagged(self, branch: str, tag: str) -> bool:
        return tag.encode() in self._entries("tags", branch)

    def configuration(self, branch: str) -> str:
        return self._entries("config", branch).get(b"", b"").decode()


SIDES: tuple[type[Side], ...] = (Stock, Plugin)
