"""The commands, one row each: the words, the folder, the effect to check, and the budget.

`old`: the calls that Breezy's own `test_vfs_ratchet` asserts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.links import Done
from bench.ratchet_sides import BACK, EMPTY, Side, Stock

MADE = "made"
"""The name of everything that commands make, here or on the server."""


@dataclass(frozen=True)
class Ran:
    """A command that has ended, for the check of its effect."""

    side: Side
    done: Done
    where: str
    tip: str
    """The tip of `trunk` before the command."""

    @property
    def tip_now(self) -> str:
        return self.side.there("project/trunk")

    def path(self, name: str) -> Path:
        """Return a path below the folder in which the command ran."""
        return self.side.home(self.where) / name


Check = Callable[[Ran], bool]


@dataclass(frozen=True)
class Row:
    name: str
    command: str
    """The words of the command; {project} and {made} stand for URLs, {file} for a file."""
    where: str = EMPTY
    """The piece in which it runs."""
    old: int | None = None
    budget: int = 1
    """Round trips that ours may take beside the connection's."""
    right: Check | None = None
    """The check of its effect."""
    status: int = 0
    says: str = ""
    """A text that its output must contain."""
    same: bool = False
    """Both sides must print the same."""
    cold: bool = False
    """True if nothing is remembered from before."""
    times: float | None = None
    """The bar in bytes of stock; None: bytes received now are not received again."""
    before: tuple[str, ...] = ()
    """Commands that run before it and are not measured."""


# -- what must be so


def pushed(branch: str = "project/trunk") -> Check:
    """Check that the server's branch has the user's tip."""
    return lambda ran: ran.side.there(branch) == ran.side.mine(ran.where)


def pulled(folder: str = "") -> Check:
    """Check that the user's branch and its files are at the tip of the server's trunk."""
    return lambda ran: (
        ran.side.mine(f"{ran.where}/{folder}") == ran.tip_now == ran.tip and _files(ran, folder) == _files_of_tip(ran)
    )


def files(folder: str) -> Check:
    """Check that the files are those of the tip."""
    return lambda ran: _files(ran, folder) == _files_of_tip(ran)


def unchanged(ran: Ran) -> bool:
    """Check that the server's trunk did not move."""
    return ran.tip_now == ran.tip


def tip_is_named(name: str) -> Check:
    """Check that a file names the tip of `trunk`: a merge that waits to be committed, or a bundle."""
    return lambda ran: _id(ran.tip_now) in ran.path(name).read_bytes()


def committed(ran: Ran) -> bool:
    """Check that the server's trunk has one revision more, and that this is the working tree's basis."""
    dirstate = ran.path(".bzr/checkout/dirstate").read_bytes()
    return _revno(ran.tip_now) == _revno(ran.tip) + 1 and _id(ran.tip_now) in dirstate


def revno(more: int, branch: str = "project/trunk") -> Check:
    """Check that a branch on the server has `more` revisions more than trunk had."""
    return lambda ran: _revno(ran.side.there(branch)) == _revno(ran.tip) + more


def went_back(ran: Ran) -> bool:
    """Check that the user's new branch is at the tip of the server's `old`, which lacks as many revisions."""
    return ran.side.mine(f"{ran.where}/{MADE}") == ran.side.there("project/old") != ran.tip


def packed(ran: Ran) -> bool:
    """Check that one pack is left, on our side. Breezy's own server claims to have packed, but has not."""
    return isinstance(ran.side, Stock) or ran.side.packs() == 1


def _files(ran: Ran, folder: str) -> dict[str, bytes]:
    return _tree(ran.path(folder))


def _files_of_tip(ran: Ran) -> dict[str, bytes]:
    return _tree(ran.side.pieces / "mine")


def _tree(root: Path) -> dict[str, bytes]:
    """Return names and texts of the files; a link has no text."""
    files = {each.relative_to(root): each for each in root.rglob("*") if each.is_symlink() or not each.is_dir()}
    kept = {name: each for name, each in files.items() if ".bzr" not in name.parts}
    return {str(name): b"" if each.is_symlink() else each.read_bytes() for name, each in kept.items()}


def _id(tip: str) -> bytes:
    return tip.partition(" ")[2].encode()


def _revno(tip: str) -> int:
    return int(tip.partition(" ")[0])


# -- the commands

TRUNK = "{project}/trunk"

TAGGED = f"tag -d {TRUNK} -r {BACK} v1"

WHOLE = 1.35
"""The bar of a whole history, in the bytes of bzr://. Each text is compressed alone, to be proved alone, where Breezy
copies blocks of many (doc/design/0005-compression.md)."""

ROWS: tuple[Row, ...] = (
    Row("push, new repository", "push {made}", "mine", right=pushed(MADE), old=9),
    Row("push, new branch", "push {project}/topic", "ahead", right=pushed("project/topic")),
    Row("push", f"push {TRUNK}", "ahead", right=pushed(), old=11),
    Row("push, nothing new", f"push {TRUNK}", "mine", right=pushed()),
    Row("push -r", f"push -r -2 {TRUNK}", "ahead", right=revno(1)),
    Row("push --overwrite", f"push --overwrite {TRUNK}", "diverged", right=pushed()),
    Row(
        "push, tags", f"push {TRUNK}", "ahead", old=11, before=("tag v1",),
        right=lambda ran: pushed()(ran) and ran.side.tagged("project/trunk", "v1"),
    ),
    Row("push, diverged", f"push {TRUNK}", "diverged", status=3, says="have diverged", right=unchanged),
    Row("branch", f"branch {TRUNK} made", right=pulled(MADE), old=11),
    Row("branch -r", f"branch -r {BACK} {TRUNK} made", right=went_back),
    Row("branch, into a shared repository", f"branch {TRUNK} made", "shared", right=pulled(MADE)),
    Row(
        "branch, from the server to the server", f"branch {TRUNK} {{project}}/copy", old=34,
        right=lambda ran: ran.side.there("project/copy") == ran.tip,
    ),
    Row("pull, nothing new", f"pull {TRUNK}", "mine", right=pulled()),
    Row("pull", f"pull {TRUNK}", "behind", right=pulled()),
    Row("pull -v", f"pull -v {TRUNK}", "behind", right=pulled()),
    Row("pull, diverged", f"pull {TRUNK}", "diverged", status=3, says="have diverged"),
    Row("pull --overwrite", f"pull --overwrite {TRUNK}", "diverged", right=pulled()),
    Row("missing", f"missing {TRUNK}", "diverged", status=1, says="You have 1 extra revision:"),
    Row("merge", f"merge {TRUNK}", "diverged", right=tip_is_named(".bzr/checkout/dirstate")),
    Row("update", "update", "stale", right=pulled()),
    Row("checkout", f"checkout {TRUNK} made", right=pulled(MADE), old=11),
    Row("checkout --lightweight", f"checkout --lightweight {TRUNK} made", right=files(MADE), old=13, cold=True),
    Row("commit, of a checkout", "commit -m one", "bound", budget=2, right=committed),
    Row("commit, of a lightweight checkout", "commit -m one", "light", budget=2, right=committed, old=211),
    Row("log", f"log {TRUNK}", same=True, cold=True, old=9),
    Row("log -l", f"log -l 10 {TRUNK}", same=True, cold=True),
    Row("log -v", f"log -v -l 10 {TRUNK}", same=True, cold=True, old=10),
    Row("log, of one file", f"log -v {TRUNK}/{{file}}", same=True, cold=True, old=14),
    Row("cat", f"cat {TRUNK}/{{file}}", same=True, cold=True, old=9),
    Row("ls", f"ls {TRUNK}", same=True, cold=True, old=6),
    Row("annotate", f"annotate --all -d {TRUNK} {{file}}", same=True, cold=True, old=9),
    Row("export", f"export made {TRUNK}", right=files(MADE), cold=True, old=8),
    Row("diff -r", f"diff -r {BACK}..-1 {TRUNK}", status=1, same=True),
    Row("info", f"info {TRUNK}", says="repository branch: ", cold=True, old=10),
    Row("info -v", f"info -v {TRUNK}", says="Branch history:", cold=True, old=14),
    Row("revno", f"revno {TRUNK}", same=True, old=6),
    Row("tag", f"tag -d {TRUNK} v1", right=lambda ran: ran.side.tagged("project/trunk", "v1"), old=9),
    Row("tags", f"tags -d {TRUNK}", same=True, before=(f"tag -d {TRUNK} v1",), old=6),
    # It shows what it removes: that is one more where the local side has not got it.
    Row("uncommit, not remembered", f"uncommit --force {TRUNK}", budget=2, right=revno(-1), old=14),
    Row("remove-branch", "remove-branch {project}/old", right=lambda ran: not ran.side.there("project/old"), old=5),
    Row(
        "switch", "switch {project}/old", "light", old=21,
        right=lambda ran: "/old" in ran.path(".bzr/branch/location").read_text(encoding="utf-8"),
    ),
    Row(
        "send", f"send -o made {TRUNK}", "ahead", old=7,
        right=lambda ran: _id(ran.side.mine("ahead")) in ran.path(MADE).read_bytes(),
    ),
    Row("config", f"config -d {TRUNK} answer", same=True, before=(f"config -d {TRUNK} answer=42",), old=5),
    Row(
        "config, an option set", f"config -d {TRUNK} answer=42",
        right=lambda ran: "answer = 42" in ran.side.configuration("project/trunk"),
    ),
    Row("break-lock", f"break-lock --force {TRUNK}", right=unchanged, old=5),
    Row(
        "pack", f"pack {TRUNK}", "ahead", right=packed, old=6,
        before=(f"push {TRUNK}",),
    ),
    Row("reconcile", f"reconcile {TRUNK}", right=unchanged, old=10),
    Row("check", f"check {TRUNK}", right=unchanged),
    Row("init-shared-repository", "init-shared-repository {made}", old=11,
        right=lambda ran: ran.side.has_repository(MADE)),
    Row("sign-my-commits", "sign-my-commits {project}/topic", "ahead", old=15, budget=2, says="Signed 2 revisions",
        before=("push {project}/topic",)),
    Row(
        "verify-signatures", "verify-signatures -r -2.. {project}/topic", "ahead", old=10,
        says="All commits signed with verifiable keys",
        before=("push {project}/topic", "sign-my-commits {project}/topic"),
    ),
    # The same with nothing remembered: no more bytes than bzr://, but for whole histories, whose texts lie one by one.
    Row("push, first contact", f"push {TRUNK}", "ahead", right=pushed(), cold=True, budget=2),
    Row(
        "push, new branch, first contact", "push {project}/topic", "ahead", cold=True, budget=2,
        right=pushed("project/topic"),
    ),
    Row("push, new repository, first contact", "push {made}", "mine", right=pushed(MADE), cold=True, times=WHOLE),
    Row("branch, first contact", f"branch {TRUNK} made", right=pulled(MADE), cold=True, times=WHOLE),
    Row("checkout, first contact", f"checkout {TRUNK} made", right=pulled(MADE), cold=True, times=WHOLE),
    Row(
        "branch -r, from the server to the server, first contact", f"branch -r {BACK} {TRUNK} {{project}}/copy",
        cold=True, budget=2, right=lambda ran: ran.side.there("project/copy") == ran.side.there("project/old"),
    ),
    Row("revision-info", f"revision-info -d {TRUNK}", same=True, cold=True),
    Row("revision-info -r", f"revision-info -d {TRUNK} -r 7", same=True, cold=True),
    Row("version-info", f"version-info {TRUNK}", says="revision-id: ", cold=True),
    Row("revno, first contact", f"revno {TRUNK}", same=True, cold=True),
    Row("revno -r TAG", f"revno -r tag:v1 {TRUNK}", same=True, cold=True, before=(TAGGED,)),
    Row("revno --tree", "revno --tree", "light", same=True, cold=True),
    Row("find-merge-base", f"find-merge-base {TRUNK} {{project}}/old", same=True, cold=True),
    Row("ancestry", f"ancestry {TRUNK}", says="@", cold=True),
    Row("tags, first contact", f"tags -d {TRUNK}", same=True, cold=True, before=(TAGGED,)),
    Row("cat-revision", f"cat-revision -d {TRUNK} -r -1", same=True, cold=True),
    Row(
        "diff --old", f"diff --old {{project}}/old --new {TRUNK}", status=1, same=True, cold=True, budget=2,
    ),
    Row("log -n0 -l", f"log -n0 -l 10 {TRUNK}", same=True, cold=True),
    Row("log --forward -l", f"log --forward -l 5 {TRUNK}", same=True, cold=True),
    Row("log -r TAG", f"log -r tag:v1 {TRUNK}", same=True, cold=True, before=(TAGGED,)),
    Row("log -r TAG, not there", f"log -r tag:none {TRUNK}", status=3, says="No such tag: none", cold=True),
)  # fmt: skip
