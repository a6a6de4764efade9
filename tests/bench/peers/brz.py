"""Breezy over its smart protocol (`brz serve`, bzr://): a shared repository with a branch in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bench.breezy import WITHOUT_PLUGIN, settings
from bench.peers import base
from bench.peers.base import CLIENT, OTHER, Act, Peer, Same


class Brz(Peer):
    name: ClassVar[str] = "brz"
    label: ClassVar[str] = "bzr://"
    programs: ClassVar[tuple[str, ...]] = ("brz",)
    earlier: ClassVar[Sequence[int]] = (15, 14, 15, 16, 12, 13, 14, 15, 21, 11)

    version: ClassVar[Sequence[str]] = ("brz", "version")
    command: ClassVar[tuple[str, ...]] = ("brz",)
    """What begins each of its commands."""

    @classmethod
    def settings(cls, folder: Path, _path: str) -> Mapping[str, str]:
        return {**settings(folder), **WITHOUT_PLUGIN}

    @classmethod
    def convert(cls, run: Callable[..., str], fixtures: Path) -> None:
        """By its own importer, then all in one pack; once for all who speak to Breezy."""
        if (fixtures / "brz").exists():
            return
        run(*cls.command, "init-shared-repository", "--quiet", "--no-trees", "brz")
        run(*cls.command, "fast-import", "--quiet", "stream", "brz")
        (fixtures / "brz" / "main").rename(fixtures / "brz" / "trunk")
        run(*cls.command, "pack", "--quiet", "brz/trunk")

    def server(self, host: str, port: int) -> Sequence[str]:
        return *self.command, *serve_options(self.site.served, host, port)

    def begin(self) -> None:
        """The history on the server, as `repository` with the branch `trunk`: a copy."""
        shutil.copytree(self.fixtures / "brz", self.site.served / "repository", symlinks=True)

    def fill(self) -> None:
        """The history, and two clones, each with a repository of its own."""
        self.begin()
        for user in (CLIENT, OTHER):
            self.site.run(user, *self.command, "branch", "--quiet", self.site.url("repository/trunk"), user, folder=".")

    def make_empty(self, name: str) -> None:
        self.site.run(CLIENT, *self.command, "init", "--quiet", str(self.site.served / name), folder=".")

    def tip(self, folder: str) -> str:
        """Revno and tip of a user's branch."""
        return last_revision(self.site.folder / folder)

    def there(self, branch: str) -> str:
        """Revno and tip of a branch of the server's, by the path of its URL; empty where there is none."""
        return last_revision(self.site.served / branch)

    def same(self, folder: str = CLIENT, branch: str = "repository/trunk") -> Same:
        return lambda: (self.there(branch), self.tip(folder))

    def commit(self, user: str, what: str) -> None:
        self.change(user, what)
        self.site.run(user, *self.command, "commit", "--quiet", "--message", what)

    def publish(self) -> None:
        self.site.run(OTHER, *self.command, "push", "--quiet", self.site.url("repository/trunk"))

    def acts(self) -> dict[str, Act]:
        url, push = self.site.url, (*self.command, "push", "--quiet")
        trunk = url("repository/trunk")
        clone, pull = (*self.command, "branch", "--quiet", trunk, "clone"), (*self.command, "pull", "--quiet", trunk)
        topic = (*push, url("repository/topic"))
        tag = lambda: self.site.run(CLIENT, *self.command, "tag", "--quiet", "v1")  # noqa: E731
        return {
            **self.usual(clone, pull, (*push, trunk), "diverged"),
            base.NEW_BRANCH: Act(topic, lambda: self.commit(CLIENT, "topic"), self.same(branch="repository/topic")),
            base.TAG: Act((*push, trunk), tag, self.same()),
            base.PUSH_ALL: Act((*push, url("empty")), lambda: self.make_empty("empty"), self.same(branch="empty")),
            base.NEW_REPOSITORY: Act((*push, url("new")), same=self.same(branch="new")),
        }


def last_revision(branch: Path) -> str:
    """Revno and tip of a branch by its path; empty where there is none."""
    place = branch / ".bzr" / "branch" / "last-revision"
    return place.read_text(encoding="utf-8").strip() if place.exists() else ""


def serve_options(served: Path, host: str, port: int) -> Sequence[str]:
    """What `brz` is told to serve a folder, writable."""
    where = (f"--listen={host}", f"--port={port}", f"--directory={served}")
    return "serve", "--protocol=bzr", "--allow-writes", *where
