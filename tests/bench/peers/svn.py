"""Subversion over its own protocol (`svnserve`, svn://): a push is a commit, a pull an update, a branch a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bench.compare.history import REVISIONS
from bench.peers import base
from bench.peers.base import CLIENT, OTHER, Act, Peer

WRITABLE = "[general]\nanon-access = write\n"


class Svn(Peer):
    """Subversion's own server, over TCP."""

    name: ClassVar[str] = "svn"
    label: ClassVar[str] = "svn://"
    programs: ClassVar[tuple[str, ...]] = ("svn", "svnserve", "svnadmin", "svnlook")
    earlier: ClassVar[Mapping[str, int]] = {
        base.CLONE: 10, base.PULL_NOTHING: 9, base.PULL_ONE: 9, base.PUSH_ONE: 6, base.PUSH_NOTHING: 0,
        base.NEW_BRANCH: 12, base.TAG: 12, base.DIVERGED: 6, base.PUSH_ALL: 20,
    }  # fmt: skip
    notes: ClassVar[tuple[str, ...]] = (
        "svn's push is a commit, its pull an update, its branch and tag a copy on the server, its first push an import "
        "of the files without history; it finds nothing to commit without asking, and cannot make a repository",
    )

    @classmethod
    def version(cls) -> Sequence[str]:
        """`1.14.2`."""
        return "svn", "--version", "--quiet"

    @classmethod
    def convert(cls, run: Callable[..., str], fixtures: Path) -> None:
        """A repository made of the dump; its first revision makes the three folders there are by custom."""
        run("svnadmin", "create", "svn")
        run("svnadmin", "load", "--quiet", "--file", "dump", "svn")
        (fixtures / "svn" / "conf" / "svnserve.conf").write_text(WRITABLE, encoding="utf-8")

    def server(self, host: str, port: int) -> Sequence[str]:
        """`svnserve`, for whoever asks."""
        return (
            "svnserve", "--daemon", "--foreground", "--root", str(self.site.served), "--listen-host", host,
            "--listen-port", str(port),
        )  # fmt: skip

    def svn(self, user: str, *command: str, folder: str | None = None) -> str:
        """What one of its commands wrote."""
        return self.site.run(user, *self.words(*command), folder=folder)

    def words(self, *command: str) -> tuple[str, ...]:
        """A command that reads nobody's configuration and asks nothing."""
        return "svn", *command, "--non-interactive", "--config-dir", str(self.site.folder / "svn-configuration")

    def fill(self) -> None:
        """A copy on the server, and two working copies."""
        self.site.run(CLIENT, "cp", "-a", str(self.fixtures / "svn"), str(self.site.served / "project"), folder=".")
        for user in (CLIENT, OTHER):
            self.svn(user, "checkout", "--quiet", self.site.url("project/trunk"), user, folder=".")

    def youngest(self, name: str = "project") -> str:
        """The server's newest revision."""
        return self.site.run(CLIENT, "svnlook", "youngest", str(self.site.served / name)).strip()

    def acts(self) -> Mapping[str, Act]:
        """All but making a repository."""
        url = self.site.url("project")

        def others() -> None:
            self.change(OTHER, "one more")
            self.svn(OTHER, "commit", "--quiet", "--message", "one more")

        def diverge() -> None:
            others()
            self.change(CLIENT, "diverged")

        def empty() -> None:
            served = self.site.served / "empty"
            self.site.run(CLIENT, "svnadmin", "create", str(served), folder=".")
            (served / "conf" / "svnserve.conf").write_text(WRITABLE, encoding="utf-8")
            self.svn(CLIENT, "export", "--quiet", CLIENT, "files", folder=".")

        def same(folder: str = CLIENT) -> Callable[[], tuple[str, str]]:
            return lambda: (
                self.youngest(), self.svn(CLIENT, "info", "--show-item", "revision", folder=folder).strip()
            )  # fmt: skip

        def grown(by: int, name: str = "project", of: int = REVISIONS + 1) -> Callable[[], tuple[str, str]]:
            return lambda: (self.youngest(name), str(of + by))

        message = ("--quiet", "--message", "one more")
        commit, update = self.words("commit", *message), self.words("update", "--quiet")
        return {
            base.CLONE: Act(self.words("checkout", "--quiet", f"{url}/trunk", "clone"), same=same("clone"), folder="."),
            base.PULL_NOTHING: Act(update, same=same()),
            base.PULL_ONE: Act(update, others, same()),
            base.PUSH_ONE: Act(commit, lambda: self.change(CLIENT, "one more"), grown(1)),
            base.PUSH_NOTHING: Act(commit, same=grown(0)),
            base.NEW_BRANCH: Act(self.words("copy", *message, f"{url}/trunk", f"{url}/branches/topic"), same=grown(1)),
            base.TAG: Act(self.words("copy", *message, f"{url}/trunk", f"{url}/tags/v1"), same=grown(1)),
            base.DIVERGED: Act(commit, diverge, grown(1), status=None, says="out of date"),
            base.PUSH_ALL: Act(
                self.words("import", *message, "files", self.site.url("empty/trunk")),
                empty,
                grown(1, "empty", 0),
                folder=".",
            ),
        }
