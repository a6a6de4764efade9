"""plugins.breezy.branch, plugins.breezy.remote, plugins.breezy.repository: in a lightweight checkout whose basis its
branch no longer reaches, commands print the same as stock Breezy with a local branch, with and without a mirror."""

from __future__ import annotations

import re
import shutil

import pytest
from breezy.workingtree import WorkingTree
from brz_sides import Begin, Users, in_process

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LOCAL = "local"
"""A local copy of the branch on the server, and its lightweight checkout."""


def check_out(users: Users) -> None:
    assert users.run("", "checkout", "--lightweight", "-q", users.url(), "light").status == 0


def follow(users: Users) -> None:
    """Make a local copy of the current branch, and its lightweight checkout."""
    assert users.run("", "branch", "-q", users.url(), LOCAL).status == 0
    assert users.run("", "checkout", "--lightweight", "-q", LOCAL, f"{LOCAL}-light").status == 0


def uncommitted(users: Users) -> None:
    check_out(users)
    follow(users)
    for branch in (users.url(), LOCAL):
        assert users.run("", "uncommit", "--force", branch).status == 0


def committed_here(users: Users) -> None:
    check_out(users)
    (users.path("light") / "three").write_text("three\nmine\n")
    assert users.run("light", "commit", "-q", "-m", "mine").status == 0
    follow(users)
    assert users.run("", "branch", "-q", "-r", "2", "a", "apart").status == 0
    users.commit("apart", "other")
    for branch in (users.url(), f"../{LOCAL}"):
        assert users.run("apart", "push", "-q", "--overwrite", branch).status == 0


@pytest.fixture(params=[uncommitted, committed_here])
def light(changed: Begin, request: pytest.FixtureRequest) -> Users:
    """Two lightweight checkouts whose basis their branch no longer reaches, with one file changed in each."""
    users = changed(request.param)
    for each in ("light", f"{LOCAL}-light"):
        with (users.path(each) / "three").open("a") as file:
            file.write("changed\n")
    return users


def plain(said: str) -> str:
    """Return the output of a command without places and times, so that local and remote compare equal."""
    return re.sub(r"\d\d:\d\d:\d\d \+0000|HERE/local-light|HERE/light|HERE/local/?|URL/trunk/?", "", said)


@pytest.mark.parametrize("kept", [False, True], ids=["evicted", "kept"])
def test_what_is_said(light: Users, kept: bool) -> None:
    """If the mirror lacks the basis, one request brings it with the new revisions."""
    for words in (
        ["annotate", "--all", "--show-ids", "three"],
        ["annotate", "--all", "one"],
        ["version-info", "--check-clean", "--custom", "--template={revision_id} {clean} {branch_nick}"],
        ["diff"],
        ["status"],
        ["log", "-n0", "--line"],
        ["update"],
        ["status"],
    ):
        if not kept:
            light.forget("light")
        done = light.run("light", *words)
        stock = light.run(f"{LOCAL}-light", *words)
        nick = done.out.replace("trunk", LOCAL) if words[0] == "version-info" else done.out
        assert (done.status, plain(nick)) == (stock.status, plain(stock.out)), (words, done.said, stock.said)
        assert done.counts.rounds_without_handshake <= 2, (words, done.counts)


@pytest.mark.parametrize("light", [committed_here], indirect=True)
@pytest.mark.parametrize("words", [["diff"], ["commit", "-m", "changed"]])
def test_a_repository_that_was_made_anew(light: Users, words: list[str]) -> None:
    """The basis of the tree no longer exists; the error says so."""
    assert light.run("a", "remove-branch", light.url()).status == 0
    light.make("anew")
    light.commit("anew", "x")
    assert light.run("", "hpss-mirrors", "--clear").status == 0
    light.forget("light")
    shutil.rmtree(f"{light.served.root}/{light.place}")
    assert light.run("anew", "push", light.url()).status == 0
    done = light.run("light", *words)
    assert "Traceback" not in done.said
    assert "object at" not in done.said
    assert "memory://" not in done.said
    assert "is no longer in the repository of" in done.err
    assert done.counts.rounds_without_handshake <= 2


# -- the revision numbers of a branch whose line of first parents ends at a ghost


TAGS = {"ghost": b"spooky", "tag1": b"rev1", "tag2": b"rev2", "unknown": b"out-of-mainline"}

COMMANDS = [
    ["tags", "-d"],
    ["revision-info", "tag:tag1", "-d"],
    ["revision-info", "revid:rev1", "-d"],
    ["revision-info", "1", "-d"],
    ["revno", "-r", "tag:tag1"],
    ["revno", "-r", "tag:ghost"],
    ["log", "--line", "-r", "tag:tag1"],
    ["log", "--line", "-r", "tag:ghost"],
    ["log", "--line", "-n0"],
]


def push_ghosts(users: Users) -> None:
    """A branch with two revisions, of which the first has a ghost as its first parent."""
    users.make("local")
    with in_process():
        tree = WorkingTree.open(str(users.path("local")))
        tree.set_parent_ids([b"spooky"], allow_leftmost_as_ghost=True)
        for revision in (b"rev1", b"rev2"):
            tree.commit(revision.decode(), rev_id=revision, committer="Joe <joe@example.org>")
        for name, revision in TAGS.items():
            tree.branch.tags.set_tag(name, revision)
    assert users.run("local", "push", users.url("ghostly")).status == 0


@pytest.fixture
def ghostly(changed: Begin) -> Users:
    return changed(push_ghosts)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_as_locally(ghostly: Users, words: list[str]) -> None:
    local, there = (ghostly.run("", *words, place) for place in ("local", ghostly.url("ghostly")))
    assert (there.status, there.said) == (local.status, local.said)
