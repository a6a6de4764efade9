"""plugins.breezy.history: of a branch only the history of the
revision that was named is sent, in one round trip, or in two where a look at the branch must tell which it is; and
commands do their work where the knowledge of a remote is missing or old."""

from __future__ import annotations

import random

import pytest
from breezy.workingtree import WorkingTree
from brz_sides import Begin, Users, in_process
from git_sides import Done

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LARGE = 200_000
"""Bytes that show where they were sent in vain."""


def push_large(users: Users) -> None:
    """Three small revisions, a large one on top, and tags."""
    users.tag("a", "v3", 3)
    users.commit("a", "large", random.Random(1).randbytes(LARGE))
    users.tag("a", "above")
    assert users.run("a", "push", users.url()).status == 0


@pytest.fixture
def large(changed: Begin) -> Users:
    return changed(push_large)


@pytest.mark.parametrize("spec", ["-2", "tag:v3", "before:tag:above"])
def test_branch(large: Users, spec: str) -> None:
    three = large.revision("a", 3)
    large.forget("nobody")
    said = large.ask("branch -r", "", "branch", "-r", spec, large.url(), "c")
    assert said == "Branched 3 revisions.\n"
    assert large.tip("c") == (3, three)
    assert large.tags("c") == large.tags("a")
    large.check("c")
    assert large.run("c", "pull").status == 0
    assert large.tip("c") == large.tip("a")


def test_pull_and_checkout(large: Users) -> None:
    assert large.run("", "branch", "-r", "1", large.url(), "c").status == 0
    done = large.run_within("pull -r", "c", "pull", "-r", "2", large.url())
    assert "Now on revision 2." in done.said
    assert large.tip("c") == (2, large.revision("a", 2))
    assert large.run("c", "pull", "-r", "tag:v3", large.url()).counts.bytes_down < 10_000
    assert large.tip("c")[0] == 3
    # Nothing is brought where it is here already.
    assert "No revisions" in large.ask("pull, nothing new", "c", "pull", "-r", "2", large.url())
    large.ask("checkout -r", "", "checkout", "-r", "2", large.url(), "d")
    assert large.tip("d")[0] == 2
    assert "Now on revision 4." in large.ask("pull -v", "c", "pull", large.url())
    for where in ("c", "d"):
        large.check(where)


def test_tags_whose_history_is_wanted_bring_it(large: Users) -> None:
    large.fine("", "branch", "-Obranch.fetch_tags=True", "-r", "3", large.url(), "c")
    with large.branch("c") as branch:
        assert branch.repository.has_revision(large.revision("a", 4))
    assert large.tip("c")[0] == 3


def test_there_is_no_such_revision(large: Users) -> None:
    for spec in ("99", "last:99", "tag:none", "none"):
        done = large.run("", "branch", "-r", spec, large.url(), "c")
        assert done.status == 3
        assert "Traceback" not in done.said
        assert "does not exist" in done.err or "No such tag" in done.err, done.err
        assert not large.path("c").exists()
    done = large.run_within("branch -r", "", "branch", "-r", "revno:99", large.url(), "c", status=3)


def test_numbers_begin_above_a_ghost(users: Users) -> None:
    """Whatever number the branch that was pushed has there: a server counts what it has."""
    with in_process():
        tree = WorkingTree.open(str(users.path("a")))
        tree.set_parent_ids([b"ghost@example.org-1"], allow_leftmost_as_ghost=True)
        tree.branch.set_last_revision_info(7, b"ghost@example.org-1")
        for number in (8, 9):
            (users.path("a") / "f").write_text(f"{number}\n")
            tree.commit(f"number {number}", committer="a <a@example.org>")
        tree.branch.set_last_revision_info(9, tree.branch.last_revision())
    users.fine("a", "push", "--overwrite", users.url())
    assert users.served_tip() == (2, users.revision("a", 9))
    users.fine("", "branch", "-r", "1", users.url(), "c")
    assert users.tip("c") == (1, users.revision("a", 8))
    done = users.run("", "branch", "-r", "8", users.url(), "d")
    assert (done.status, "Traceback" in done.said) == (3, False), done.said


# -- what is remembered is missing or old: one more round trip at most


MUCH = 400_000
"""A size of content that no client would send twice; a push of this much announces its graph first."""


def fine(done: Done, trips: int = 1) -> Done:
    """Check that a command succeeded in so many round trips at most, and one to connect; return its results."""
    assert done.status == 0, done.said
    assert done.counts.rounds <= trips + 1, (done.counts, done.said)
    return done


def with_much(users: Users) -> None:
    """Much content, which user a has pushed and user b has pulled."""
    users.commit("a", "large", random.Random(1).randbytes(MUCH))
    assert users.run("a", "push").status == 0
    assert users.run("b", "pull").status == 0


@pytest.fixture
def known(changed: Begin) -> Users:
    return changed(with_much)


def test_nothing_is_remembered(known: Users) -> None:
    known.forget("a")
    known.commit("a", "more")
    assert "Pushed up to revision 5." in known.ask("push, first contact, large", "a", "push")
    known.forget("a")
    pushed = known.run_within("push, first contact, large", "a", "push", known.url("topic"))
    assert pushed.counts.bytes_up < MUCH / 2
    known.forget("b")
    assert "No new revisions or tags" in fine(known.run("b", "push", known.url()), 2).err
    known.forget("b")
    pulled = fine(known.run("b", "pull"))
    assert pulled.counts.bytes_down < MUCH / 2
    assert known.tip("b") == known.served_tip()


def test_what_is_remembered_is_old(known: Users) -> None:
    (file,) = known.knowledge_files("a")
    old = file.read_bytes()
    for name in ("four", "five"):
        known.commit("a", name)
        known.tag("a", name)
        fine(known.run("a", "push"))
        file.write_bytes(old)
    fine(known.run("b", "pull"))
    known.commit("b", "six")
    fine(known.run("b", "push", known.url()))
    # The tip is one user a does not have, and not the one remembered.
    assert "No new revisions or tags" in fine(known.run("a", "push")).err
    fine(known.run("a", "pull", known.url()))
    assert known.tip("a") == known.tip("b") == known.served_tip()
    # A tag that is remembered, and was removed meanwhile.
    assert known.run("", "tag", "-d", known.url(), "--delete", "four").status == 0
    assert "1 tag updated." in fine(known.run("a", "push"), 2).err
    assert "four" in known.served_entries("tags")
