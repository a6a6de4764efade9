"""Mercurial over HTTP (`hg serve`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bench.peers import base
from bench.peers.base import CLIENT, OTHER, Act, Peer, Same

NOTHING = 1
"""Exit status of `hg push` that found nothing to push."""

SETTINGS: Mapping[str, str] = {"HGRCPATH": "", "HGPLAIN": "1", "HGUSER": "Demo <demo@example.org>"}
"""The environment of an hg without a configuration."""


LOG = "hgweb.log"
"""Where a server logs its requests, a line each."""


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
    command: ClassVar[tuple[str, ...]] = ("hg",)
    """What begins each of its commands."""

    @classmethod
    def settings(cls, _folder: Path, _path: str) -> Mapping[str, str]:
        return SETTINGS

    @classmethod
    def convert(cls, run: Callable[..., str], fixtures: Path) -> None:
        """By its own converter, once for both who speak to Mercurial; the branch is the default one."""
        if (fixtures / "hg").exists():
            return
        run("hg", "--config", "extensions.convert=", "convert", "--quiet", "git", "hg")
        run("hg", "-R", "hg", "bookmark", "--delete", "main")

    def server(self, host: str, port: int) -> Sequence[str]:
        return serve_options(self.site.served, self.site.folder.parent, host, port)

    def hg(self, user: str, *words: str, folder: str | None = None) -> str:
        """What a command of a user said."""
        return self.site.run(user, *self.command, *words, folder=folder)

    def begin(self) -> None:
        """Put the history on the server."""
        self.hg(CLIENT, "clone", "--noupdate", str(self.fixtures / "hg"), str(self.site.served / "project"), folder=".")

    def make_empty(self, name: str) -> None:
        """Make what a first push of all goes to."""
        self.hg(CLIENT, "init", str(self.site.served / name), folder=".")

    def fill(self) -> None:
        self.begin()
        for user in (CLIENT, OTHER):
            self.hg(user, "clone", "--quiet", self.site.url("project"), user, folder=".")

    def tip(self, folder: str) -> str:
        return self.hg(CLIENT, "log", "--rev", "tip", "--template", "{node}", folder=folder)

    def there(self, name: str) -> str:
        """The tip of a repository of the server's."""
        return self.tip(f"served/{name}")

    def same(self, folder: str = CLIENT, name: str = "project") -> Same:
        return lambda: (self.there(name), self.tip(folder))

    def commit(self, user: str, what: str) -> None:
        self.change(user, what)
        self.hg(user, "commit", "--message", what)

    def publish(self) -> None:
        self.hg(OTHER, "push", "--quiet")

    def acts(self) -> dict[str, Act]:

        def topic() -> None:
            self.hg(CLIENT, "branch", "--quiet", "topic")
            self.commit(CLIENT, "topic")

        push = (*self.command, "push", "--quiet")
        clone = (*self.command, "clone", "--quiet", self.site.url("project"), "clone")
        return {
            **self.usual(clone, (*self.command, "pull", "--quiet"), push, "new remote head"),
            base.PUSH_NOTHING: Act(push, same=self.same(), status=NOTHING),
            base.NEW_BRANCH: Act((*push, "--new-branch"), topic, self.same()),
            base.TAG: Act(push, lambda: self.hg(CLIENT, "tag", "v1"), self.same()),
            base.PUSH_ALL: Act(
                (*push, self.site.url("empty")), lambda: self.make_empty("empty"), self.same(name="empty")
            ),
        }


def serve_options(served: Path, folder: Path, host: str, port: int) -> Sequence[str]:
    """The command that serves what lies in `served`, writable; its own files are in `folder`."""
    collection = folder / "hgweb.conf"
    collection.write_text(f"[paths]\n/ = {served}/*\n[web]\nrefreshinterval = 0\n", encoding="utf-8")
    return (
        "hg", "serve", "--address", host, "--port", str(port), "--webdir-conf", str(collection),
        "--accesslog", str(folder / LOG), "--config", "web.push_ssl=False", "--config", "web.allow-push=*",
    )  # fmt: skip
