"""plugins.breezy.branch: the revision numbers of a branch whose line of first parents ends at a ghost."""

from __future__ import annotations

import pytest
from breezy.workingtree import WorkingTree
from brz_sides import Begin, Users, in_process

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

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
