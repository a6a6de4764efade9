"""The commands of a user of brz that `brz_ratchet.py` runs on both sides."""

from __future__ import annotations

from dataclasses import dataclass

from git_sides import CommandRow

EMPTY = "empty"
"""The piece for a command that needs none."""

WHOLE = 1.35
"""The bar of a whole history, in the bytes of bzr://. Each text is compressed alone, to be proved alone, where Breezy
copies blocks of many (doc/design/0005-compression.md)."""


@dataclass(frozen=True)
class Row(CommandRow):
    """One command; {trunk} and {made} stand for URLs, {url} for that of the repository, {file} for a file of it."""

    start: str = EMPTY
    """The folder in which it runs, one of `brz_ratchet.PIECES`."""
    says: str = ""
    """A text that its output must contain."""
    same: bool = False
    """Both sides must print the same."""
    cold: bool = False
    """True if nothing is remembered from before."""
    times: float | None = None
    """The bar in bytes of stock; None: bytes received now are not received again."""
    budget: str = ""
    """The name of its budget if it is not that of the row; without one, it takes one round trip at most."""


TAGGED = "tag -d {trunk} -r -11 v1"

ROWS = (
    Row("push, new repository", "push {made}", "mine"),
    Row("push, new branch", "push {url}/topic", "ahead"),
    Row("push", "push {trunk}", "ahead"),
    Row("push, nothing new", "push {trunk}", "mine"),
    Row("push -r", "push -r -2 {trunk}", "ahead"),
    Row("push --overwrite", "push --overwrite {trunk}", "diverged"),
    Row("push, tags", "push {trunk}", "ahead", "tag v1"),
    Row("push, diverged", "push {trunk}", "diverged", status=3, says="have diverged"),
    Row("branch", "branch {trunk} made"),
    Row("branch -r", "branch -r -11 {trunk} made"),
    Row("branch, into a shared repository", "branch {trunk} made", "shared"),
    Row("branch, from the server to the server", "branch {trunk} {url}/copy", budget="branch, beside"),
    Row("pull, nothing new", "pull {trunk}", "mine"),
    Row("pull", "pull {trunk}", "behind"),
    Row("pull -v", "pull -v {trunk}", "behind"),
    Row("pull, diverged", "pull {trunk}", "diverged", status=3, says="have diverged"),
    Row("pull --overwrite", "pull --overwrite {trunk}", "diverged"),
    Row("missing", "missing {trunk}", "diverged", status=1, says="You have 1 extra revision:"),
    Row("merge", "merge {trunk}", "diverged"),
    Row("update", "update", "stale"),
    Row("checkout", "checkout {trunk} made"),
    Row("checkout --lightweight", "checkout --lightweight {trunk} made", cold=True),
    Row("commit, of a checkout", "commit -m one", "bound"),
    Row("commit, of a lightweight checkout", "commit -m one", "light", budget="commit, lightweight"),
    Row("log", "log {trunk}", same=True, cold=True),
    Row("log -l", "log -l 10 {trunk}", same=True, cold=True),
    Row("log -v", "log -v -l 10 {trunk}", same=True, cold=True),
    Row("log, of one file", "log -v {trunk}/{file}", same=True, cold=True, budget="log, one file"),
    Row("cat", "cat {trunk}/{file}", same=True, cold=True),
    Row("ls", "ls {trunk}", same=True, cold=True),
    Row("annotate", "annotate --all -d {trunk} {file}", same=True, cold=True),
    Row("export", "export made {trunk}", cold=True),
    Row("diff -r", "diff -r -11..-1 {trunk}", status=1, same=True),
    Row("info", "info {trunk}", says="repository branch: ", cold=True),
    Row("info -v", "info -v {trunk}", says="Branch history:", cold=True),
    Row("revno", "revno {trunk}", same=True),
    Row("tag", "tag -d {trunk} v1"),
    Row("tags", "tags -d {trunk}", before="tag -d {trunk} v1", same=True),
    # It shows what it removes: that is one more where the local side has not got it.
    Row("uncommit, not remembered", "uncommit --force {trunk}"),
    Row("remove-branch", "remove-branch {url}/old"),
    Row("switch", "switch {url}/old", "light"),
    Row("send", "send -o made {trunk}", "ahead"),
    Row("config", "config -d {trunk} answer", before="config -d {trunk} answer=42", same=True),
    Row("config, an option set", "config -d {trunk} answer=42"),
    Row("break-lock", "break-lock --force {trunk}"),
    Row("pack", "pack {trunk}", "ahead", "push {trunk}"),
    Row("reconcile", "reconcile {trunk}"),
    Row("check", "check {trunk}"),
    Row("init-shared-repository", "init-shared-repository {made}"),
    Row("sign-my-commits", "sign-my-commits {url}/topic", "ahead", "push {url}/topic", says="Signed 2 revisions"),
    Row(
        "verify-signatures",
        "verify-signatures -r -2.. {url}/topic",
        "ahead",
        "push {url}/topic; sign-my-commits {url}/topic",
        says="All commits signed with verifiable keys",
    ),
    # The same with nothing remembered: no more bytes than bzr://, but for whole histories, whose texts lie one by one.
    Row("push, first contact", "push {trunk}", "ahead", cold=True, budget="push, first contact, large"),
    Row("push, new branch, first contact", "push {url}/topic", "ahead", cold=True, budget="push, first contact, large"),
    Row("push, new repository, first contact", "push {made}", "mine", cold=True, times=WHOLE),
    Row("branch, first contact", "branch {trunk} made", cold=True, times=WHOLE),
    Row("checkout, first contact", "checkout {trunk} made", cold=True, times=WHOLE),
    Row(
        "branch -r, from the server to the server, first contact",
        "branch -r -11 {trunk} {url}/copy",
        cold=True,
        budget="branch, beside, not remembered",
    ),
    Row("revision-info", "revision-info -d {trunk}", same=True, cold=True),
    Row("revision-info -r", "revision-info -d {trunk} -r 7", same=True, cold=True),
    Row("version-info", "version-info {trunk}", says="revision-id: ", cold=True),
    Row("revno, first contact", "revno {trunk}", same=True, cold=True),
    Row("revno -r TAG", "revno -r tag:v1 {trunk}", before=TAGGED, same=True, cold=True),
    Row("revno --tree", "revno --tree", "light", same=True, cold=True),
    Row("find-merge-base", "find-merge-base {trunk} {url}/old", same=True, cold=True),
    Row("ancestry", "ancestry {trunk}", says="@", cold=True),
    Row("tags, first contact", "tags -d {trunk}", before=TAGGED, same=True, cold=True),
    Row("cat-revision", "cat-revision -d {trunk} -r -1", same=True, cold=True),
    Row(
        "diff --old", "diff --old {url}/old --new {trunk}", status=1, same=True, cold=True, budget="diff, two branches"
    ),
    Row("log -n0 -l", "log -n0 -l 10 {trunk}", same=True, cold=True),
    Row("log --forward -l", "log --forward -l 5 {trunk}", same=True, cold=True),
    Row("log -r TAG", "log -r tag:v1 {trunk}", before=TAGGED, same=True, cold=True),
    Row("log -r TAG, not there", "log -r tag:none {trunk}", status=3, says="No such tag: none", cold=True),
)
