"""What is pulled over the branch of a lightweight checkout: all that its tree and the report need is read before the
branch is moved: plugins.breezy.inter."""

from __future__ import annotations

import shutil

import pytest
from brz_sides import Begin, Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def make_light(users: Users) -> None:
    """A lightweight checkout of `trunk`; the local `apart` and `other` have each a revision instead of its last one."""
    for name in ("apart", "other"):
        assert users.run("", "branch", "-q", "-r", "2", "a", name).status == 0
        users.commit(name, name)
    assert users.run("", "checkout", "--lightweight", users.url(), "light").status == 0


@pytest.fixture
def light(changed: Begin) -> Users:
    return changed(make_light)


def test_where_somebody_else_has_overwritten_the_branch(light: Users) -> None:
    """The branch does not reach what the tree rests on."""
    assert light.run("apart", "push", "-q", "--overwrite", light.url()).status == 0
    (light.path("light") / "one").write_text("mine\n")
    done = light.run("light", "pull", "--no-remember", "--overwrite", "../other")
    assert (done.status, "Now on revision 3.\n" in done.out) == (0, True), done.said
    assert light.served_tip() == light.tip("other")
    assert light.run("light", "status", "--short").out == " M  one\n"
    assert (light.path("light") / "other").exists()
    assert not (light.path("light") / "three").exists()


@pytest.mark.parametrize("source", ["here", "beside"])
def test_what_was_removed_and_added_is_said(light: Users, source: str) -> None:
    place = "../apart"
    if source == "beside":
        place = light.url("apart")
        assert light.run("apart", "push", "-q", place).status == 0
    done = light.run("light", "pull", "--no-remember", "--overwrite", "-v", place)
    assert done.status == 0, done.said
    removed, _, added = done.out.partition("Added Revisions:\n")
    assert "Removed Revisions:\n" in removed
    assert "commit three" in removed
    assert "commit apart" in added
    assert light.served_tip() == light.tip("apart"), done.said
    assert light.run("light", "status", "--short").out == ""


def test_what_was_added_by_a_merge_of_the_branch_is_said(light: Users) -> None:
    """The first parents of what is pulled do not lead to what the branch was."""
    light.commit("apart", "more")
    assert light.run("apart", "merge", "-q", light.url()).status == 0
    light.commit_merge("apart")
    assert light.run("apart", "push", "-q", light.url("apart")).status == 0
    done = light.run("light", "pull", "--no-remember", "-v", light.url("apart"))
    assert done.status == 0, done.said
    assert done.out.partition("Added Revisions:\n")[2].count("revno: ") == 3
    assert light.served_tip() == light.tip("apart"), done.said


def test_what_was_added_of_a_merged_line_is_said(light: Users) -> None:
    """Its revisions have other numbers where they were merged."""
    assert light.run("a", "merge", "-q", "../apart").status == 0
    light.commit_merge("a")
    assert light.run("a", "push", "-q", light.url("merged")).status == 0
    done = light.run("light", "pull", "--no-remember", "--overwrite", "-v", "-r", "2.1.1", light.url("merged"))
    assert (done.status, "commit apart" in done.out.partition("Added Revisions:\n")[2]) == (0, True), done.said
    assert light.served_tip() == light.tip("apart"), done.said


def test_what_is_ahead_of_a_branch_that_somebody_else_has_overwritten(light: Users) -> None:
    """Nothing need be overwritten, and the tree is out of reach all the same."""
    assert light.run("apart", "push", "-q", "--overwrite", light.url()).status == 0
    light.commit("apart", "more")
    done = light.run("light", "pull", "--no-remember", "../apart")
    assert (done.status, "Now on revision 4.\n" in done.out) == (0, True), done.said
    assert light.served_tip() == light.tip("apart"), done.said
    assert light.run("light", "status", "--short").out == ""


@pytest.mark.parametrize("source", ["here", "beside"])
def test_nothing_is_changed_where_the_server_has_not_what_the_tree_rests_on(light: Users, source: str) -> None:
    shutil.rmtree(light.served.root / light.place)
    assert light.run("", "init-shared-repository", "-q", light.url("")).status == 0
    for branch, place in (("apart", light.url()), ("other", light.url("other"))):
        assert light.run(branch, "push", "-q", place).status == 0
    place = "../other" if source == "here" else light.url("other")
    done = light.run("light", "pull", "--no-remember", "--overwrite", place)
    assert (done.status, "is not in the repository of" in done.err) == (3, True), done.said
    assert light.served_tip() == light.tip("apart"), done.said
