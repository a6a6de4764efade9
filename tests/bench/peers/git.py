"""Git over its own protocol (`git daemon`), and over ours: the commands are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from bench.peers import base
from bench.peers.base import CLIENT, OTHER, Act, Peer, Same
from smartserver.cli.servers import serving_git

BRANCH = "main"
REF = f"refs/heads/{BRANCH}"


class Git(Peer):
    name: ClassVar[str] = "git"
    label: ClassVar[str] = "git://"
    programs: ClassVar[tuple[str, ...]] = ("git",)
    earlier: ClassVar[Sequence[int]] = (4, 3, 4, 3, 2, 3, 3, 2, 3)
    version: ClassVar[Sequence[str]] = ("git", "--version")
    notes: ClassVar[tuple[str, ...]] = ("git:// cannot make a repository",)

    @classmethod
    def convert(cls, _run: Callable[..., str], fixtures: Path) -> None:
        """It is made in git's form (`bench.histories`)."""

    def server(self, host: str, port: int) -> Sequence[str]:
        return serving_git(self.site.served, host, port)

    def make(self, name: str) -> None:
        self.site.run(CLIENT, "git", "init", "--quiet", "--bare", str(self.site.served / name), folder=".")

    def tip(self, ref: str, name: str = "project") -> str:
        return self.site.run(CLIENT, "git", "--git-dir", str(self.site.served / name), "rev-parse", ref).strip()

    def fill(self) -> None:
        self.make("project")
        url = self.site.url("project")
        self.site.run(CLIENT, "git", "-C", str(self.fixtures / "git"), "push", "--quiet", url, REF, folder=".")
        for user in (CLIENT, OTHER):
            self.site.run(user, "git", "clone", "--quiet", "--branch", BRANCH, url, user, folder=".")

    def commit(self, user: str, what: str) -> None:
        """A commit of one file on the branch that is checked out."""
        self.change(user, what)
        self.site.run(user, "git", "commit", "--quiet", "--all", "-m", what)

    def publish(self) -> None:
        self.site.run(OTHER, "git", "push", "--quiet", "origin", BRANCH)

    def local(self, folder: str = CLIENT, ref: str = "HEAD") -> str:
        return self.site.run(CLIENT, "git", "rev-parse", ref, folder=folder).strip()

    def same(self, folder: str = CLIENT) -> Same:
        return lambda: (self.tip(REF), self.local(folder))

    def acts(self) -> dict[str, Act]:

        def topic() -> None:
            self.site.run(CLIENT, "git", "checkout", "--quiet", "-b", "topic")
            self.commit(CLIENT, "topic")

        pull = ("git", "pull", "--quiet", "--ff-only", "origin", BRANCH)
        push = ("git", "push", "--quiet", "origin")
        clone = ("git", "clone", "--quiet", "--branch", BRANCH, self.site.url("project"), "clone")
        tag = lambda: self.site.run(CLIENT, "git", "tag", "-a", "-m", "first", "v1")  # noqa: E731
        all_ = ("git", "push", "--quiet", self.site.url("empty"), REF)
        return {
            **self.usual(clone, pull, (*push, BRANCH), "rejected"),
            base.NEW_BRANCH: Act((*push, "topic"), topic, lambda: (self.tip("refs/heads/topic"), self.local())),
            base.TAG: Act((*push, "v1"), tag, lambda: (self.tip("refs/tags/v1"), self.local(ref="v1"))),
            base.PUSH_ALL: Act(all_, lambda: self.make("empty"), lambda: (self.tip(REF, "empty"), self.local())),
        }
