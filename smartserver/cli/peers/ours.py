"""Git over hpss://, to our server."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from smartserver.cli.peers import base
from smartserver.cli.peers.base import CLIENT, Act
from smartserver.cli.peers.git import REF, Git


class Ours(Git):
    """Stock git and its remote helper."""

    name: ClassVar[str] = "hpss"
    label: ClassVar[str] = "git over hpss://"
    programs: ClassVar[tuple[str, ...]] = ("git", "git-remote-hpss")
    earlier: ClassVar[Mapping[str, int]] = {}
    notes: ClassVar[tuple[str, ...]] = (
        "hpss:// makes a repository with its first push, so that its last two rows are one operation",
    )

    def server(self, host: str, port: int) -> Sequence[str]:
        """`smartserver serve`, writable."""
        return serving(self.site.served, host, port)

    def make(self, name: str) -> None:
        """The first push does it."""

    def tip(self, ref: str, name: str = "project") -> str:
        """Where a ref of the server is, as it says itself."""
        return self.site.run(CLIENT, "git", "ls-remote", self.site.url(name), ref).partition("\t")[0]

    def acts(self) -> Mapping[str, Act]:
        """Git's, and making a repository."""
        acts = super().acts()
        new = ("git", "push", "--quiet", self.site.url("new"), REF)
        made = replace(acts[base.PUSH_ALL], command=new, same=lambda: (self.tip(REF, "new"), self.tip(REF)))
        return {**acts, base.NEW_REPOSITORY: made}


def serving(served: Path, host: str, port: int) -> Sequence[str]:
    """The command of our server, for whoever asks."""
    return (
        sys.executable, "-m", "smartserver.cli.main", "serve", str(served), "--listen", f"{host}:{port}",
        "--anonymous", "write",
    )  # fmt: skip
