"""Mercurial over HTTP (`hg serve`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bench.peers import base
from bench.peers.base import CLIENT, OTHER, Act, Peer, Same

NOTHING = 1
"""Exit status of `hg push` that found nothing to push."""


class Hg(Peer):
    """Mercurial's own server; it serves every repository that lies in its folder."""

    name: ClassVar[str] = "hg"
    label: ClassVar[str] = "hg http://"
    programs: ClassVar[tuple[str, ...]] = ("hg",)
    earlier: ClassVar[Sequence[int]] = (4, 4, 4, 10, 6, 10, 10, 8, 10)
    version: ClassVar[Sequence[str]] = ("hg", "version")
    notes: ClassVar[tuple[str, ...]] = (
        "hg's tag is a commit to .hgtags and a push; over http it cannot make a repository",
    )

    @classmethod
    def settings(cls, _folder: Path, _path: str) -> Mapping[str, str]:
        return {"HGRCPATH": "", "HGPLAIN": "1", "HGUSER": "Demo <demo@example.org>"}

    @classmethod
    def convert(cls, run: Callable[..., str], fixtures: Path) -> None:
        """By its own converter; the branch is the default one."""
        run("hg", "--config", "extensions.convert=", "convert", "--quiet", "git", "hg")
        run("hg", "-R", "hg", "bookmark", "--delete", "main")

    def server(self, host: str, port: int) -> Sequence[str]:
        collection = self.site.folder.parent / "hgweb.conf"
        collection.write_text(f"[paths]\n/ = {self.site.served}/*\n[web]\nrefreshinterval = 0\n", encoding="utf-8")
        return (
            "hg", "serve", "--address", host, "--port", str(port), "--webdir-conf", str(collection),
            "--config", "web.push_ssl=False", "--config", "web.allow-push=*",
        )  # fmt: skip

    def fill(self) -> None:
        served = self.site.served
        self.site.run(
            CLIENT, "hg", "clone", "--noupdate", str(self.fixtures / "hg"), str(served / "project"), folder="."
        )
        for user in (CLIENT, OTHER):
            self.site.run(user, "hg", "clone", "--quiet", self.site.url("project"), user, folder=".")

    def tip(self, folder: str) -> str:
        return self.site.run(CLIENT, "hg", "log", "--rev", "tip", "--template", "{node}", folder=folder)

    def same(self, folder: str = CLIENT, served: str = "served/project") -> Same:
        return lambda: (self.tip(served), self.tip(folder))

    def commit(self, user: str, what: str) -> None:
        self.change(user, what)
        self.site.run(user, "hg", "commit", "--message", what)

    def publish(self) -> None:
        self.site.run(OTHER, "hg", "push", "--quiet")

    def acts(self) -> dict[str, Act]:

        def topic() -> None:
            self.site.run(CLIENT, "hg", "branch", "--quiet", "topic")
            self.commit(CLIENT, "topic")

        push = ("hg", "push", "--quiet")
        clone = ("hg", "clone", "--quiet", self.site.url("project"), "clone")
        empty = lambda: self.site.run(CLIENT, "hg", "init", str(self.site.served / "empty"), folder=".")  # noqa: E731
        return {
            **self.usual(clone, ("hg", "pull", "--quiet"), push, "new remote head"),
            base.PUSH_NOTHING: Act(push, same=self.same(), status=NOTHING),
            base.NEW_BRANCH: Act((*push, "--new-branch"), topic, self.same()),
            base.TAG: Act(push, lambda: self.site.run(CLIENT, "hg", "tag", "v1"), self.same()),
            base.PUSH_ALL: Act((*push, self.site.url("empty")), empty, self.same(served="served/empty")),
        }
