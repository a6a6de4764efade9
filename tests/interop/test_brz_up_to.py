"""plugins.breezy.history: of a branch only the history of the
revision that was named is sent, in one round trip, or in two where a look at the branch must tell which it is."""

from __future__ import annotations

import random
import shutil

import pytest
from breezy.workingtree import WorkingTree
from brz_sides import Begin, Users, in_process

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


@pytest.mark.parametrize("spec", ["3", "-2", "tag:v3", "v3", "revid:", "before:4"])
def test_branch(large: Users, spec: str) -> None:
    three = large.revision("a", 3)
    if spec == "revid:":
        spec += three.decode()
    large.forget("nobody")
    said = large.ask("branch -r", "", "branch", "-r", spec, large.url(), "c")
    assert said == "Branched 3 revisions.\n"
    assert large.tip("c") == (3, three)
    assert large.tags("c") == large.tags("a")
    large.check("c")
    assert large.run("c", "pull").status == 0
    assert large.tip("c") == large.tip("a")


@pytest.mark.parametrize(
    ("spec", "revno"),
    [("ancestor:a3", 3), ("before:tag:above", 3), ("date:2001-01-01", 1)],
)
def test_what_only_a_look_can_tell(large: Users, spec: str, revno: int) -> None:
    """Which revision it is, is read off the graph, or what the revisions say; then its history is brought."""
    assert large.run("", "branch", "-q", "-r", "3", "a", "a3").status == 0
    large.forget("nobody")
    large.ask("branch -r", "", "branch", "-r", spec, large.url(), "c")
    assert large.tip("c") == (revno, large.revision("a", revno))
    large.check("c")
    assert large.run("c", "pull").status == 0
    assert large.tip("c") == large.tip("a")


def make_shared(users: Users) -> None:
    """A shared repository that holds another project, and knows nothing of the server."""
    push_large(users)
    users.make("foreign")
    users.commit("foreign", "another")
    users.make("shared", shared=True)
    assert users.run("shared", "branch", "../foreign", "foreign").status == 0


@pytest.fixture
def shared(changed: Begin) -> Users:
    return changed(make_shared)


@pytest.mark.parametrize(
    ("spec", "budget"),
    [
        ("date:2001-01-01", "branch -r"),
        ("3", "branch -r"),
    ],
)
def test_another_project_spares_the_server_nothing(shared: Users, spec: str, budget: str) -> None:
    for where in ("c", "d"):
        shared.ask(budget, "shared", "branch", "-r", spec, shared.url(), where)
    shared.check("shared/c")
    shared.ask("branch -r", "shared", "branch", "-r", "4", shared.url(), "e")
    assert shared.tip("shared/e") == shared.tip("a")


def test_there_is_no_such_revision_beside_another_project(shared: Users) -> None:
    for _ in range(2):
        done = shared.run("shared", "branch", "-r", "99", shared.url(), "c")
        assert (done.status, "does not exist" in done.err) == (3, True), done.said
        assert not shared.path("shared/c").exists()


def test_where_history_is_here_all_that_is_new_comes_at_once(large: Users) -> None:
    assert large.run("", "branch", "-r", "2", large.url(), "c").status == 0
    large.ask("pull -r", "c", "pull", "-r", "before:tag:above")
    assert large.tip("c") == (3, large.revision("a", 3))


def test_a_revision_that_was_merged(users: Users) -> None:
    shutil.copytree(users.path("a"), users.path("side"))
    beside = users.commit("side", "beside")
    users.commit("a", "four")
    assert users.run("a", "merge", "../side").status == 0
    users.commit_merge("a")
    assert users.run("a", "push", users.url()).status == 0
    users.ask("branch -r", "", "branch", "-r", f"revid:{beside.decode()}", users.url(), "c")
    assert users.tip("c") == (4, beside)
    users.commit("a", "large", random.Random(1).randbytes(LARGE))
    assert users.run("a", "push", users.url()).status == 0
    done = users.run_within("branch -r", "", "branch", "-r", "3.1.1", users.url(), "d")
    assert users.tip("d") == (4, beside)
    users.check("d")
    # With tags whose history is wanted, too, there is more than one revision to be brought.
    users.tag("a", "above")
    assert users.run("a", "push", users.url()).status in (0, 1)
    done = users.run("", "branch", "-Obranch.fetch_tags=True", "-r", "3.1.1", users.url(), "tagged")
    assert done.status == 0, done.said
    with users.branch("tagged") as branch:
        assert branch.repository.has_revision(users.tip("a")[1])
    users.ask("branch -r", "", "branch", "-r", "6", users.url(), "e")
    assert users.tip("e") == users.tip("a")


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
    done = large.run("", "branch", "-Obranch.fetch_tags=True", "-r", "3", large.url(), "c")
    assert done.status == 0, done.said
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
    pushed = users.run("a", "push", "--overwrite", users.url())
    assert pushed.status == 0, pushed.said
    assert users.served_tip() == (2, users.revision("a", 9))
    done = users.run("", "branch", "-r", "1", users.url(), "c")
    assert done.status == 0, done.said
    assert users.tip("c") == (1, users.revision("a", 8))
    done = users.run("", "branch", "-r", "8", users.url(), "d")
    assert (done.status, "Traceback" in done.said) == (3, False), done.said
