"""Subversion over its own protocol (`svnserve`, svn://): a push is a commit, a pull an update, a branch a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from bench.histories import REVISIONS
from bench.peers import base
from bench.peers.base import CLIENT, OTHER, Act, Peer, Same

WRITABLE = "[general]\nanon-access = write\n"


class Svn(Peer):
    name: ClassVar[str] = "svn"
    label: ClassVar[str] = "svn://"
    programs: ClassVar[tuple[str, ...]] = ("svn", "svnserve", "svnadmin", "svnlook")
    earlier: ClassVar[Sequence[int]] = (10, 9, 9, 6, 0, 12, 12, 6, 20)
    version: ClassVar[Sequence[str]] = ("svn", "--version", "--quiet")
    notes: ClassVar[tuple[str, ...]] = (
        "svn's push is a commit, its pull an update, its branch and tag a copy on the server, its first push an import "
        "of the files without history; it finds nothing to commit without asking, and cannot make a repository",
    )

    @classmethod
    def convert(cls, run: Callable[..., str], fixtures: Path) -> None:
        """A repository made of the dump; its first revision makes the three folders there are by custom."""
        run("svnadmin", "create", "svn")
        run("svnadmin", "load", "--quiet", "--file", "dump", "svn")
        (fixtures / "svn" / "conf" / "svnserve.conf").write_text(WRITABLE, encoding="utf-8")

    def server(self, host: str, port: int) -> Sequence[str]:
        return (
            "svnserve", "--daemon", "--foreground", "--root", str(self.site.served), "--listen-host", host,
            "--listen-port", str(port),
        )  # fmt: skip

    def svn(self, user: str, *command: str, folder: str | None = None) -> str:
        return self.site.run(user, *self.words(*command), folder=folder)

    def words(self, *command: str) -> tuple[str, ...]:
        """A command that reads nobody's configuration and asks nothing."""
        return "svn", *command, "--non-interactive", "--config-dir", str(self.site.folder / "svn-configuration")

    def fill(self) -> None:
        self.site.run(CLIENT, "cp", "-a", str(self.fixtures / "svn"), str(self.site.served / "project"), folder=".")
        for user in (CLIENT, OTHER):
            self.svn(user, "checkout", "--quiet", self.site.url("project/trunk"), user, folder=".")

    def youngest(self, name: str = "project") -> str:
        return self.site.run(CLIENT, "svnlook", "youngest", str(self.site.served / name)).strip()

    def same(self, folder: str = CLIENT) -> Same:
        return lambda: (self.youngest(), self.svn(CLIENT, "info", "--show-item", "revision", folder=folder).strip())

    def commit(self, user: str, what: str) -> None:
        """What is committed here is committed on the server."""
        self.change(user, what)

    def publish(self) -> None:
        self.svn(OTHER, "commit", "--quiet", "--message", "one more")

    def acts(self) -> dict[str, Act]:
        url, message = self.site.url("project"), ("--quiet", "--message", "one more")

        def empty() -> None:
            served = self.site.served / "empty"
            self.site.run(CLIENT, "svnadmin", "create", str(served), folder=".")
            (served / "conf" / "svnserve.conf").write_text(WRITABLE, encoding="utf-8")
            self.svn(CLIENT, "export", "--quiet", CLIENT, "files", folder=".")

        def grown(by: int, name: str = "project", of: int = REVISIONS + 1) -> Same:
            return lambda: (self.youngest(name), str(of + by))

        clone, update = self.words("checkout", "--quiet", f"{url}/trunk", "clone"), self.words("update", "--quiet")
        found = self.usual(clone, update, self.words("commit", *message), "out of date")
        for operation, by in ((base.PUSH_ONE, 1), (base.PUSH_NOTHING, 0), (base.DIVERGED, 1)):
            found[operation] = replace(found[operation], same=grown(by))
        for operation, target in ((base.NEW_BRANCH, "branches/topic"), (base.TAG, "tags/v1")):
            found[operation] = Act(self.words("copy", *message, f"{url}/trunk", f"{url}/{target}"), same=grown(1))
        import_ = self.words("import", *message, "files", self.site.url("empty/trunk"))
        return {**found, base.PUSH_ALL: Act(import_, empty, grown(1, "empty", 0), folder=".")}
