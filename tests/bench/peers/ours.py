"""Git, Breezy and Mercurial over hpss://, to our server."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from mercurials import LIBRARIES, LOADER

from bench.breezy import BRZ, breezy_library, plugin_at, settings
from bench.peers import base
from bench.peers.base import CLIENT, Act
from bench.peers.brz import Brz
from bench.peers.git import REF, Git
from bench.peers.hg import Hg
from bench.store import opened
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import serving
from smartserver.store.repository import PackRepository


class Ours(Git):
    """Stock git and its remote helper."""

    name: ClassVar[str] = "hpss"
    label: ClassVar[str] = "git over hpss://"
    programs: ClassVar[tuple[str, ...]] = ("git", "git-remote-hpss")
    earlier: ClassVar[Sequence[int]] = ()
    notes: ClassVar[tuple[str, ...]] = (
        "hpss:// makes a repository with its first push, so that its last two rows are one operation",
    )

    def server(self, host: str, port: int) -> Sequence[str]:
        return serving(self.site.served, host, port)

    def make(self, name: str) -> None:
        """The first push does it."""

    def tip(self, ref: str, name: str = "project") -> str:
        return self.site.run(CLIENT, "git", "ls-remote", self.site.url(name), ref).partition("\t")[0]

    def acts(self) -> dict[str, Act]:
        acts = super().acts()
        new = ("git", "push", "--quiet", self.site.url("new"), REF)
        made = replace(acts[base.PUSH_ALL], command=new, same=lambda: (self.tip(REF, "new"), self.tip(REF)))
        return {**acts, base.NEW_REPOSITORY: made}


class OursByBrz(Brz):
    """Breezy with our plugin, by this interpreter, which finds Breezy where `brz` is."""

    name: ClassVar[str] = "hpss-brz"
    label: ClassVar[str] = "brz over hpss://"
    earlier: ClassVar[Sequence[int]] = ()
    version: ClassVar[Sequence[str]] = (*BRZ, "version")
    command: ClassVar[tuple[str, ...]] = BRZ

    @classmethod
    def lacking(cls, path: str) -> list[str]:
        """Breezy, where this interpreter does not find it."""
        try:
            cls.settings(Path(), path)
        except CommandError as wrong:
            return super().lacking(path) or [str(wrong)]
        return []

    @classmethod
    def settings(cls, folder: Path, path: str) -> Mapping[str, str]:
        program = shutil.which("brz", path=path)
        library = breezy_library(Path(program).parent if program else None)
        return {**settings(folder), **library, "BRZ_PLUGINS_AT": plugin_at()}

    def server(self, host: str, port: int) -> Sequence[str]:
        return serving(self.site.served, host, port)

    def make_empty(self, name: str) -> None:
        """The first push does it."""

    def begin(self) -> None:
        self.site.run(CLIENT, *BRZ, "init-shared-repository", "--quiet", self.site.url("repository"), folder=".")
        trunk = str(self.fixtures / "brz" / "trunk")
        self.site.run(CLIENT, *BRZ, "push", "--quiet", "-d", trunk, self.site.url("repository/trunk"), folder=".")

    def there(self, branch: str) -> str:
        return stored_tip(self.site.served, branch)


class OursByHg(Hg):
    """Stock hg with our extension."""

    name: ClassVar[str] = "hpss-hg"
    label: ClassVar[str] = "hg over hpss://"
    earlier: ClassVar[Sequence[int]] = ()
    notes: ClassVar[tuple[str, ...]] = ()
    command: ClassVar[tuple[str, ...]] = (
        "hg", "--config", f"extensions.hpss={LOADER}", "--config", f"hpss.path={LIBRARIES}",
    )  # fmt: skip

    def server(self, host: str, port: int) -> Sequence[str]:
        return serving(self.site.served, host, port)

    def begin(self) -> None:
        self.hg(CLIENT, "push", "--quiet", "-R", str(self.fixtures / "hg"), self.site.url("project"), folder=".")

    def make_empty(self, name: str) -> None:
        """The first push does it."""

    def there(self, name: str) -> str:
        return self.hg(CLIENT, "identify", "--rev", "tip", "--template", "{node}", self.site.url(name), folder=".")

    def acts(self) -> dict[str, Act]:
        acts = super().acts()
        made = replace(
            acts[base.PUSH_ALL],
            command=(*self.command, "push", "--quiet", self.site.url("new")),
            same=self.same(name="new"),
        )
        return {**acts, base.NEW_REPOSITORY: made}


def stored(served: Path, branch: str) -> tuple[PackRepository, bytes]:
    """The repository of a Breezy branch below `served`, which is the first part of its path, and the branch's ref."""
    repository, _, name = branch.partition("/")
    return opened(served, repository), name.encode() or b"."


def stored_tip(served: Path, branch: str) -> str:
    """Revno and tip of a Breezy branch, as `last-revision` of Breezy's own has them; empty where there is none."""
    repository, name = stored(served, branch)
    value = repository.snapshot().view.refs().get(name) if repository.exists() else None
    return "" if value is None else f"{value[0].attributes.decode()} {value[0].id.decode()}"
