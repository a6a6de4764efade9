"""plugins.breezy.remote, plugins.breezy.inter: something is pulled into a lightweight checkout whose branch lies beside
it on the server or here: one request reads all that its tree and the report need, one moves the branch."""

from __future__ import annotations

import re
import shutil

import pytest
from brz_sides import Begin, Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def make_light(users: Users) -> None:
    """A lightweight checkout of `trunk`; `new` is two revisions ahead of it, `apart` has one that it has not."""
    shutil.copytree(users.path("a"), users.path("new"))
    users.commit("new", "four")
    users.commit("new", "five")
    users.tag("new", "v5")
    assert users.run("new", "push", users.url("new")).status == 0
    assert users.run("", "branch", "-q", "-r", "2", "a", "apart").status == 0
    users.commit("apart", "other")
    assert users.run("apart", "push", users.url("apart")).status == 0
    assert users.run("", "checkout", "--lightweight", users.url(), "light").status == 0
    assert users.run("light", "status").status == 0  # Its user has met the branch.


@pytest.fixture
def light(changed: Begin) -> Users:
    return changed(make_light)


def test_pull(light: Users) -> None:
    said = light.ask("pull, lightweight", "light", "pull", "--no-remember", light.url("new"))
    assert said == "Now on revision 5.\n1 tag(s) updated.\n+N  five\n+N  four\nAll changes applied successfully.\n"
    assert light.served_tip() == light.served_tip("new") == light.tip("new")
    assert light.served_entries("tags").keys() == {"v1", "v5"}
    assert light.ask("status, lightweight", "light", "status") == ""
    assert (light.path("light") / "five").read_text() == "five\n"
    said = light.ask("pull, lightweight, nothing new", "light", "pull", "--no-remember", light.url("new"))
    assert said == "No revisions or tags to pull.\n"
    assert light.run("", "branch", "-q", light.url(), "got").status == 0
    light.check("got")


def test_pull_of_no_revision(light: Users) -> None:
    assert light.run("", "branch", "-q", "-r", "1", "a", "one").status == 0
    for revision, source in (("4", "../one"), ("5", light.url("one"))):
        assert light.run("new", "push", "-q", "-r", revision, light.url()).status == 0  # The user has not seen it.
        done = light.run("light", "pull", "--no-remember", "-r", "last:2", source)
        assert (done.status, done.said) == (0, "No revisions or tags to pull.\n")
        assert light.run("one", "push", light.url("one")).status == 0
    assert light.served_tip() == light.tip("new")


def test_pull_of_what_has_diverged(light: Users) -> None:
    before = light.served_tip()
    words = ("pull", "--no-remember", light.url("apart"))
    said = light.ask("pull, lightweight, diverged", "light", *words, status=3)
    assert said.startswith("brz: ERROR: These branches have diverged. Use the missing command to see how.\n")
    assert light.served_tip() == before
    (light.path("light") / "one").write_text("mine\n")
    said = light.ask("pull, lightweight", "light", *words, "--overwrite")
    assert said == "Now on revision 3.\n+N  other\n-D  three\nAll changes applied successfully.\n"
    assert light.served_tip() == light.tip("apart")
    assert light.run("light", "status", "--short").out == " M  one\n"
    assert "Committed revision 4." in light.ask("commit, lightweight", "light", "commit", "-m", "on it")


def test_pull_up_to_a_revision_and_of_what_the_branch_remembers(light: Users) -> None:
    done = light.run("light", "pull", "-r", "4", light.url("new"), "-v")
    assert "Now on revision 4." in done.said, done.said
    assert "commit four" in done.said
    assert light.served_tip() == (4, light.revision("new", 4))
    said = light.ask("pull, lightweight", "light", "pull")
    assert said.startswith("Using saved parent location: URL/new/\n")
    assert "Now on revision 5." in said
    assert light.ask("status, lightweight", "light", "status") == ""


def test_pull_of_its_own_branch_that_has_moved_leaves_the_tree(light: Users) -> None:
    """It has nothing to be pulled; the tree is brought there by an update, as over bzr://."""
    light.commit("a", "ahead")
    assert light.run("a", "push", light.url()).status == 0
    said = light.ask("pull, lightweight, of its own branch", "light", "pull", "--no-remember", light.url())
    assert said == "No revisions or tags to pull.\n"
    assert not (light.path("light") / "ahead").exists()
    (light.path("light") / "one").write_text("mine\n")
    assert "Working tree is out of date" in light.refused("light", "commit", "-m", "out of date")
    assert "Updated to revision 4" in light.run("light", "update").said


@pytest.mark.parametrize(
    ("source", "option", "forth"),
    [("URL", "--remember", True), ("URL", "--no-remember", False), ("../new", "--no-remember", True)],
)
def test_pull_into_a_branch_that_has_moved_since(light: Users, source: str, option: str, forth: bool) -> None:
    """The tree is brought from where the branch was, not from where its user last saw it. By now it is at what is
    pulled, or was put back."""
    place = light.url("new") if source == "URL" else source
    if forth:
        assert light.run("new", "push", light.url()).status == 0
        told = "No revisions or tags to pull.\n"
    else:
        assert light.run("light", "pull", "--no-remember", place).status == 0
        assert light.run("new", "push", "--overwrite", "-r", "4", light.url()).status == 0
        told = "Now on revision 5.\nAll changes applied successfully.\n"
    done = light.run("light", "pull", option, place)
    assert (done.status, done.said) == (0, told)
    assert light.served_tip() == light.tip("new")
    assert (light.path("light") / "five").exists() is not forth


def test_pull_into_a_bound_branch_whose_master_was_put_back(light: Users) -> None:
    """Breezy's own pull decides about the master, on its present state: the command runs once and says so once."""
    assert light.run("", "checkout", light.url(), "bound").status == 0
    assert light.run("bound", "pull", "--no-remember", light.url("new")).status == 0
    assert light.run("new", "push", "--overwrite", "-r", "4", light.url()).status == 0
    done = light.run("bound", "pull", "--no-remember", light.url("new"))
    assert (done.status, done.said) == (0, "No revisions or tags to pull.\n")
    assert light.served_tip() == light.tip("new")


@pytest.mark.parametrize("source", ["URL", "../new"])
def test_pull_keeps_a_parent_that_somebody_else_set_since(light: Users, source: str) -> None:
    assert light.run("a", "config", "-d", light.url(), "--scope=branch", "parent_location=../apart").status == 0
    place = light.url("new") if source == "URL" else source
    done = light.run("light", "pull", place)
    assert (done.status, done.err) == (0, "+N  five\n+N  four\nAll changes applied successfully.\n")
    assert light.run("a", "config", "-d", light.url(), "parent_location").out == "../apart\n"


REPORT = "Removed Revisions:\n.*commit three.*Added Revisions:\n.*commit other"


@pytest.mark.parametrize(
    ("before", "words", "said", "tip"),
    [
        ("a push -r 2 URL/old", "URL/old", "^No revisions or tags to pull", "a 3"),
        ("a push -r 2 URL/old", "--overwrite URL/old", "^Now on revision 2", "a 2"),
        ("new push ANOTHER/new", "ANOTHER/new", "^Now on revision 5", "new 5"),
        # The condition that the branch is where it was names a revision that the source has not.
        ("", "../apart", "ERROR: These branches have diverged", "a 3"),
        ("", "--overwrite ../apart", "^Now on revision 3", "apart 3"),
        ("", "--overwrite -v ../apart", REPORT, "apart 3"),
        ("", "--overwrite -v URL/apart", REPORT, "apart 3"),
        # The branch does not reach what the tree rests on.
        ("apart push --overwrite URL/trunk", "--overwrite ../new", "^Now on revision 5", "new 5"),
    ],
)
def test_pull_of_what_lies_elsewhere(light: Users, before: str, words: str, said: str, tip: str) -> None:
    def placed(text: str) -> list[str]:
        return text.replace("ANOTHER", light.served.url(f"{light.place}-another")).replace("URL", light.url("")).split()

    (light.path("light") / "one").write_text("mine\n")
    if before:
        light.fine(*placed(before))
    done = light.run("light", "pull", "--no-remember", *placed(words))
    assert re.search(said, done.said, re.DOTALL), done.said
    branch, revno = tip.split()
    assert light.served_tip() == (int(revno), light.revision(branch, int(revno)))
    assert light.run("light", "status", "--short").out == " M  one\n"


@pytest.mark.parametrize("source", ["here", "beside"])
def test_pull_changes_nothing_where_the_server_has_not_what_the_tree_rests_on(light: Users, source: str) -> None:
    assert light.run("", "branch", "-q", "-r", "2", "a", "more").status == 0
    light.commit("more", "more")
    shutil.rmtree(light.served.root / light.place)
    assert light.run("", "init-shared-repository", "-q", light.url("")).status == 0
    for branch, place in (("apart", light.url()), ("more", light.url("more"))):
        assert light.run(branch, "push", "-q", place).status == 0
    light.forget("light")
    place = "../more" if source == "here" else light.url("more")
    done = light.run("light", "pull", "--no-remember", "--overwrite", place)
    assert (done.status, "is no longer in the repository of" in done.err) == (3, True), done.said
    assert light.served_tip() == light.tip("apart"), done.said
