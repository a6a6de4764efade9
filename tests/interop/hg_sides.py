"""Two sides that do the same with stock hg: one against a served repository, one against Mercurial's own in a folder.

A script is sh, as in `git_sides`. `a commit f`: user a commits a file.
"""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from git_sides import USERS, Done, Served, Side, readdress
from hg_forks import with_forked
from hg_histories import open_repository
from mercurials import HGRC, LIBRARIES, LOADER
from sources import ROOT

from smartserver.plugins.mercurial.markers import encode
from smartserver.records.model import RefValue
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

BUDGETS: dict[str, int] = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text(encoding="utf-8"))["hg"]
"""The most round trips of each command, the handshake left out."""

COMMIT = r"""
commit() { printf '%s\n' "$1" > "$1"; hg add -q "$1"; hg commit -q -m "$1"; }
"""

SETTINGS = (
    HGRC
    + """
[ui]
merge = internal:merge
[devel]
default-date = 0 0
"""
)


@dataclass(frozen=True)
class HgPair:
    """Our side and Mercurial's own."""

    ours: HgSide
    hgs: HgSide

    def run(self, script: str) -> tuple[Done, Done]:
        return self.ours.run(script), self.hgs.run(script)

    def prepare(self, script: str) -> None:
        for side in (self.ours, self.hgs):
            side.prepare(script)


class HgSide(Side):
    """The repositories of some users in a folder, and a URL that they share."""

    prelude = USERS + COMMIT

    def __init__(self, folder: Path, url: str, served: Served | None = None) -> None:
        super().__init__(folder, url, served)
        (folder / ".hgrc").write_text(SETTINGS.format(loader=LOADER, libraries=LIBRARIES))

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of a script."""
        inherited = super().environment()
        path = with_forked(inherited["PATH"])
        hg = {"PATH": path, "HGRCPATH": str(self.folder / ".hgrc"), "HGENCODING": "utf-8"}
        return inherited | hg | variables

    def has(self) -> dict[str, list[str]]:
        """Return the content of each user's repository, without the order of its changesets."""
        found = {}
        for name in ("a", "b", "c"):
            if (self.folder / name / ".hg").exists():
                repository = open_repository(self.folder / name)
                every = [repository[rev] for rev in repository]
                rows = [(each.hex(), each.phasestr(), each.branch(), *each.bookmarks()) for each in every]
                found[name] = sorted(str(row) for row in [*rows, *repository.obsstore])
        return found


def server_heads(served: Served, path: str) -> dict[str, list[str]]:
    """Return the heads of the branches of a served repository."""
    refs = _refs(served, path)
    return {name.decode(): sorted(tip.id.hex() for tip in value) for name, value in refs.items()}


def _refs(served: Served, path: str) -> dict[bytes, RefValue]:
    transaction = PackRepository(LocalTransport(served.root / path)).begin()
    return dict(transaction.refs()) if transaction.exists else {}


def server_bookmarks(served: Served, path: str) -> dict[str, str]:
    """Return the bookmarks of a served repository."""
    transaction = PackRepository(LocalTransport(served.root / path)).begin()
    return {name.decode(): node.hex() for name, node in transaction.map("bookmarks").items()}


def server_markers(served: Served, path: str) -> set[bytes]:
    """Return the obsolescence markers of a served repository."""
    transaction = PackRepository(LocalTransport(served.root / path)).begin()
    return set(transaction.map("obsolete").values())


def peer_markers(side: HgSide) -> set[bytes]:
    """Return the obsolescence markers of the peer in a folder."""
    return {encode(marker) for marker in open_repository(side.folder / "peer").obsstore}


def peer_heads(side: HgSide) -> dict[str, list[str]]:
    """Return the heads of the branches of the peer in a folder, with obsolete ones that a bookmark shows."""
    served = open_repository(side.folder / "peer").filtered(b"served")
    branches = served.branchmap()
    found = {name: set(branches.branchheads(name, closed=True)) for name in branches}
    for node in served.heads():
        if served[node].obsolete():
            found.setdefault(served[node].branch(), set()).add(node)
    return {name.decode(): sorted(node.hex() for node in nodes) for name, nodes in found.items()}


def peer_bookmarks(side: HgSide) -> dict[str, str]:
    """Return the bookmarks of the peer in a folder."""
    return {name.decode(): node.hex() for name, node in open_repository(side.folder / "peer")._bookmarks.items()}


def copy_hg_side(template: HgSide, folder: Path, url: str) -> HgSide:
    """Copy a side to another folder and URL, with its users' knowledge of the remote."""
    shutil.copytree(template.folder, folder, symlinks=True)
    side = HgSide(folder, url, template.served)
    for config in folder.glob("*/.hg/hgrc"):
        text = config.read_text()
        config.write_text(text.replace(template.url, url).replace(str(template.folder), str(folder)))
    if template.served is not None:
        for remotes in folder.glob(".cache/*/smartserver/remotes"):
            readdress(remotes, template.url, url)
    return side
