"""Breezy over its smart protocol (`brz serve`, bzr://): a shared repository with a branch in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from smartserver.cli.peers import base
from smartserver.cli.peers.base import CLIENT, OTHER, Act, Peer


class Brz(Peer):
    """Breezy's own server, over TCP."""

    name: ClassVar[str] = "brz"
    label: ClassVar[str] = "bzr://"
    programs: ClassVar[tuple[str, ...]] = ("brz",)
    earlier: ClassVar[Mapping[str, int]] = {
        base.CLONE: 15, base.PULL_NOTHING: 14, base.PULL_ONE: 15, base.PUSH_ONE: 16, base.PUSH_NOTHING: 12,
        base.NEW_BRANCH: 13, base.TAG: 14, base.DIVERGED: 15, base.PUSH_ALL: 21, base.NEW_REPOSITORY: 11,
    }  # fmt: skip

    @classmethod
    def settings(cls, folder: Path) -> Mapping[str, str]:
        """Nobody's configuration, and no log."""
        return {
            "BRZ_HOME": str(folder / "brz"), "BRZ_EMAIL": "Demo <demo@example.org>", "BRZ_LOG": "/dev/null",
            "BRZ_PROGRESS_BAR": "none",
        }  # fmt: skip

    @classmethod
    def version(cls) -> Sequence[str]:
        """`Breezy (brz) 3.3.23`."""
        return "brz", "version"

    @classmethod
    def convert(cls, run: Callable[..., str], fixtures: Path) -> None:
        """By its own importer, then all in one pack."""
        run("brz", "init-shared-repository", "--quiet", "--no-trees", "brz")
        run("brz", "fast-import", "--quiet", "stream", "brz")
        (fixtures / "brz" / "main").rename(fixtures / "brz" / "trunk")
        run("brz", "pack", "--quiet", "brz/trunk")

    def server(self, host: str, port: int) -> Sequence[str]:
        """`brz serve`, writable."""
        return (
            "brz", "serve", "--protocol=bzr", "--allow-writes", f"--listen={host}", f"--port={port}",
            f"--directory={self.site.served}",
        )  # fmt: skip

    def fill(self) -> None:
        """A copy on the server, and two clones, each with a repository of its own."""
        repository = self.site.served / "repository"
        self.site.run(CLIENT, "cp", "-a", str(self.fixtures / "brz"), str(repository), folder=".")
        for user in (CLIENT, OTHER):
            self.site.run(user, "brz", "branch", "--quiet", self.site.url("repository/trunk"), user, folder=".")

    def tip(self, folder: str) -> str:
        """The newest revision of a branch."""
        return (self.site.folder / folder / ".bzr" / "branch" / "last-revision").read_text(encoding="utf-8")

    def acts(self) -> Mapping[str, Act]:
        """All."""
        trunk = self.site.url("repository/trunk")

        def commit(user: str, what: str) -> None:
            self.change(user, what)
            self.site.run(user, "brz", "commit", "--quiet", "--message", what)

        def others() -> None:
            commit(OTHER, "one more")
            self.site.run(OTHER, "brz", "push", "--quiet", trunk)

        def diverge() -> None:
            others()
            commit(CLIENT, "diverged")

        def same(one: str = "served/repository/trunk", other: str = CLIENT) -> Callable[[], tuple[str, str]]:
            return lambda: (self.tip(one), self.tip(other))

        pull, push = ("brz", "pull", "--quiet", trunk), ("brz", "push", "--quiet")
        empty = self.site.served / "empty"
        return {
            base.CLONE: Act(("brz", "branch", "--quiet", trunk, "clone"), same=same(other="clone"), folder="."),
            base.PULL_NOTHING: Act(pull, same=same()),
            base.PULL_ONE: Act(pull, others, same()),
            base.PUSH_ONE: Act((*push, trunk), lambda: commit(CLIENT, "one more"), same()),
            base.PUSH_NOTHING: Act((*push, trunk), same=same()),
            base.NEW_BRANCH: Act(
                (*push, self.site.url("repository/topic")), lambda: commit(CLIENT, "topic"),
                same("served/repository/topic"),
            ),
            base.TAG: Act((*push, trunk), lambda: self.site.run(CLIENT, "brz", "tag", "--quiet", "v1"), same()),
            base.DIVERGED: Act((*push, trunk), diverge, same(other=OTHER), status=None, says="diverged"),
            base.PUSH_ALL: Act(
                (*push, self.site.url("empty")),
                lambda: self.site.run(CLIENT, "brz", "init", "--quiet", str(empty), folder="."),
                same("served/empty"),
            ),
            base.NEW_REPOSITORY: Act((*push, self.site.url("new")), same=same("served/new")),
        }  # fmt: skip
