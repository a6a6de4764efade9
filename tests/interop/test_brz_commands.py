"""Each command of brz over hpss:// has its usual effect, in the round trips of `budgets.toml` and without a VFS call:
plugins.breezy.branch, plugins.breezy.controldir, plugins.breezy.history, plugins.breezy.inter,
plugins.breezy.push, plugins.breezy.remote, plugins.breezy.repository, plugins.breezy.server, plugins.breezy.change,
plugins.breezy.transport."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest
from breezy.branch import Branch
from breezy.workingtree import WorkingTree
from brz_sides import BUDGETS, Users, in_process
from brz_two_users import Model
from git_sides import Served

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LARGE = 400_000
"""A size of content that no client would send twice; a push of this much announces its graph first."""


def large(seed: int) -> bytes:
    return random.Random(seed).randbytes(LARGE)


def test_every_budget_is_used() -> None:
    texts = [file.read_text() for file in Path(__file__).parent.glob("test_brz_*.py")]
    used = {name for text in texts for name in re.findall(r'(?:ask|run_within|Row)\(\s*"([^"]+)"', text)}
    assert used == BUDGETS.keys()


# -- push


def test_push_makes_what_is_not_there(users: Users) -> None:
    said = users.ask("push, new repository", "a", "push", users.served.url(f"{users.place}-made"))
    assert said == "Created new branch.\n"
    assert users.served_tip(".", f"{users.place}-made") == users.tip("a")
    # A branch below a branch, and a name that is the path below.
    assert "Created new" in users.ask("push, new branch", "a", "push", f"{users.url('trunk')},branch=deep%2Ftopic")
    assert users.served_tip("trunk/deep/topic") == users.tip("a")


@pytest.mark.parametrize(("option", "remembered"), [((), True), (("--remember",), True), (("--no-remember",), False)])
def test_a_push_remembers_where_to_unless_told_not_to(users: Users, option: tuple[str, ...], remembered: bool) -> None:
    assert users.run("", "branch", "-q", "a", "new").status == 0
    assert users.run("new", "push", "-q", *option, users.url("new")).status == 0
    with users.branch("new") as branch:
        assert (branch.get_push_location() is not None) is remembered


def test_push(users: Users) -> None:
    said = users.ask("push, nothing new", "a", "push")
    assert said == "Using saved push location: URL/trunk/\nNo new revisions or tags to push.\n"
    users.commit("a", "four")
    users.tag("a", "v4")
    said = users.ask("push, tags", "a", "push", "-v")
    assert "Pushed up to revision 4.\n1 tag updated.\n" in said
    assert "commit four" in said
    assert "commit three" not in said
    assert users.served_tip() == users.tip("a")
    five = users.commit("a", "five")
    users.commit("a", "six")
    assert "Pushed up to revision 5." in users.ask("push -r", "a", "push", "-r", "5")
    assert users.served_tip() == (5, five)
    # That the server's branch is further on is no reason to complain.
    assert "No new revisions" in users.ask("push, behind", "b", "push", users.url())
    assert "Pushed up to revision 2." in users.ask("push --overwrite", "a", "push", "-r", "2", "--overwrite")
    with users.branch("a") as branch:
        assert users.served_tip() == (2, branch.get_rev_id(2))


def test_a_push_that_has_diverged_is_refused_and_remembers_where_to(users: Users) -> None:
    users.commit("a", "four")
    users.ask("push", "a", "push")
    users.commit("b", "other", large(1))
    users.tag("b", "vb")
    before = users.served_tip()
    said = users.ask("push, diverged", "b", "push", users.url(), status=3)
    assert said == 'brz: ERROR: These branches have diverged.  See "brz help diverged-branches" for more information.\n'
    assert users.served_tip() == before
    assert users.served_entries("tags").keys() == {"v1"}
    assert users.run("b", "push").err.startswith("Using saved push location: URL/trunk/\nbrz: ERROR: These branches")


def test_a_push_shows_what_it_removes(users: Users) -> None:
    """User b does not have the removed revisions; the server sends them."""
    users.commit("a", "four")
    users.commit("a", "five")
    users.ask("push", "a", "push")
    assert users.run("b", "push", "-v", users.url()).out == "Nothing seems to have changed\n"
    users.commit("b", "other")
    users.forget("b")
    done = users.run("b", "push", "-v", "--overwrite", users.url())
    removed, _, added = done.out.partition("Added Revisions:\n")
    assert (done.status, re.findall("commit .*", removed)) == (0, ["commit four", "commit five"]), done.said
    assert re.findall("commit .*", added) == ["commit other"]


@pytest.mark.parametrize("option", [(), ("--force",)])
def test_a_tag_of_the_tip_where_that_has_moved(users: Users, option: tuple[str, ...]) -> None:
    """A tag that was set on the remembered tip is compared with it, or with the tip that the server has now."""
    tag = ("tag", "-d", users.url())
    assert users.run("b", *tag, "there").status == 0
    users.commit("a", "four")
    assert users.run("a", "push", "-q").status == 0
    done = users.run("b", *tag, *option, "there")
    if not option:
        assert (done.status, done.err) == (3, "brz: ERROR: Tag there already exists.\n")
        assert users.run("a", *tag, "--force", "there").status == 0
        done = users.run("b", *tag, "there")
        assert (done.status, done.err) == (0, "Tag there already exists for that revision.\n")
    else:
        assert (done.status, done.err) == (0, "Updated tag there.\n")
    assert users.served_entries("tags")["there"] == users.tip("a")[1]


def test_tags_in_conflict(users: Users) -> None:
    users.tag("a", "v1", 2)
    before = users.served_entries("tags")
    assert "Conflicting tags:\n    v1\n" in users.run("a", "push").said
    assert users.served_entries("tags") == before
    assert "1 tag updated." in users.ask("push --overwrite-tags", "a", "push", "--overwrite-tags")
    assert users.served_entries("tags") == users.tags("a")


# -- branch, pull, missing, merge


def test_branch(users: Users) -> None:
    assert users.ask("branch", "", "branch", users.url(), "c") == "Branched 3 revisions.\n"
    assert (users.tip("c"), users.tags("c")) == (users.tip("a"), users.tags("a"))
    users.check("c")
    assert "the packs of the mirror are copied" in users.log.read_text()
    users.ask("branch -r", "", "branch", "-r", "2", users.url(), "d")
    assert users.tip("d")[0] == 2
    assert "Not a branch" in users.ask("branch, nothing there", "", "branch", users.url("none"), "f", status=3)


def test_branch_from_within_another(users: Users) -> None:
    """The new branch's repository does not use the one of the branch around the current folder."""
    tip = users.tip("a")
    for where, words in (("a", []), ("part", []), ("part", ["-r", "3"])):
        if where == "part" and not users.path("part").exists():
            assert users.run("", "branch", "-r", "2", "a", "part").status == 0
        new = f"new-{where}-{len(words)}"
        said = users.ask("branch", where, "branch", users.url(), f"../{new}", *words)
        assert said == "Branched 3 revisions.\n"
        assert users.tip(new) == tip
        users.check(new)
    assert users.ask("branch", "a", "branch", users.url()) == "Branched 3 revisions.\n"
    users.check("a/trunk")
    users.make("shared", shared=True)
    users.ask("branch, into a shared repository", "a", "branch", users.url(), "../shared/x")
    users.ask("branch", "shared/x", "branch", users.url(), "../../outside")
    users.ask("branch", "shared/x", "branch", "--standalone", users.url(), "../alone")
    for new in ("shared/x", "outside", "shared/alone"):
        assert users.tip(new) == tip
        users.check(new)
    users.ask("checkout -r, within another", "a", "checkout", "-r", "2", users.url(), "../check")
    users.check("check")


def test_what_a_shared_repository_holds_does_not_come(users: Users) -> None:
    users.commit("a", "four", large(2))
    assert users.run("a", "push", users.url("two")).status == 0
    users.make("s", shared=True)
    users.ask("branch, into a shared repository", "s", "branch", users.url("two"), "two")
    assert users.tip("s/two") == users.tip("a")
    again = users.run("s", "branch", users.url("two"), "again")
    assert again.status == 0
    assert again.counts.bytes_down < 3_000


def test_pull(users: Users) -> None:
    said = users.ask("pull, nothing new", "b", "pull")
    assert said == "Using saved parent location: URL/trunk/\nNo revisions or tags to pull.\n"
    users.commit("a", "four")
    assert users.run("a", "push").status == 0
    said = users.ask("pull -v", "b", "pull", "-v")
    assert "Now on revision 4." in said
    assert "commit four" in said
    assert users.tip("b") == users.tip("a")
    users.commit("a", "five")
    assert users.run("a", "push").status == 0
    users.commit("b", "other")
    said = users.ask("pull, diverged", "b", "pull", status=3)
    assert "These branches have diverged. Use the missing command to see how." in said
    users.ask("pull --overwrite", "b", "pull", "--overwrite")
    assert users.tip("b") == users.tip("a")
    users.check("b")


def test_missing_and_merge(users: Users) -> None:
    users.commit("a", "four")
    assert users.run("a", "push").status == 0
    users.commit("b", "other")
    said = users.ask("missing", "b", "missing", "--line", status=1)
    assert "You have 1 extra revision:\n4: b" in said
    assert "You are missing 1 revision:\n4: a" in said
    assert "All changes applied successfully." in users.ask("merge", "b", "merge", users.url())
    users.commit_merge("b")
    assert "Pushed up to revision 5." in users.run("b", "push", users.url()).err
    assert users.run("a", "pull", users.url()).status == 0
    assert users.tip("a") == users.tip("b")
    users.check("a")


def test_a_ghost_that_is_none_on_the_server(users: Users) -> None:
    """User b has a merge without the merged revision, and pulls a revision based on that later."""
    shutil.copytree(users.path("a"), users.path("side"))
    merged = users.commit("side", "merged")
    with in_process():
        tree = WorkingTree.open(str(users.path("b")))
        tree.set_parent_ids([tree.last_revision(), merged])
        tree.commit("merge", committer="b <b@example.org>")
    with users.branch("a") as branch, in_process():
        branch.fetch(Branch.open(str(users.path("side"))))
        branch.pull(Branch.open(str(users.path("b"))))
    assert users.run("a", "push").status == 0
    users.commit("side", "later")
    with in_process():
        tree = WorkingTree.open(str(users.path("a")))
        tree.update()
        with tree.lock_write():
            tree.merge_from_branch(Branch.open(str(users.path("side"))))
    users.commit_merge("a")
    assert users.run("a", "push").status == 0
    pulled = users.fine("b", "pull")
    assert pulled.counts.rounds == 2
    users.check("b")
    assert users.tip("b") == users.tip("a")


# -- checkouts


def test_a_checkout(users: Users) -> None:
    users.ask("checkout", "", "checkout", users.url(), "c")
    users.add("c", "new")
    assert "Committed revision 4." in users.ask("commit, of a checkout", "c", "commit", "-m", "bound")
    assert users.served_tip() == users.tip("c")
    users.ask("tag, of a checkout", "c", "tag", "bound")
    assert users.served_entries("tags") == users.tags("c")
    users.commit("a", "other")
    assert users.run("a", "push", "--overwrite").status == 0
    users.add("c", "late")
    late = users.run("c", "commit", "-m", "late")
    assert late.status == 3
    assert "out of date" in late.err
    assert late.counts.rounds == 2
    assert "Updated to revision 4 of branch URL/trunk" in users.ask("update", "c", "update")
    assert users.tip("c") == users.tip("a")


# -- what is said of a branch, and changed in it


def test_what_is_said_of_a_branch(users: Users) -> None:
    assert users.ask("revno", "", "revno", users.url()) == "3\n"
    assert users.ask("tags", "", "tags", "-d", users.url()).split() == ["v1", "1"]
    lines = users.ask("log", "", "log", "--line", users.url()).splitlines()
    assert [line.split()[0] for line in lines] == ["3:", "2:", "1:"]
    said = users.ask("info", "", "info", users.url())
    assert "shared repository: URL/\n  repository branch: URL/trunk/\n" in said
    assert users.ask("branches", "", "branches", users.url("")) == "  trunk\n"
    said = users.ask("break-lock", "", "break-lock", users.url())
    assert said == "There are no locks to break: a push to URL/trunk/ locks nothing.\n"


def test_tags_of_one_time_are_listed_by_name(users: Users) -> None:
    """The order in which they were set does not matter."""
    for name in ("v9", "v2", "v5"):
        assert users.run("", "tag", "-q", "-d", users.url(), name).status == 0
    said = users.run("", "tags", "-d", users.url(), "--sort=time").out
    assert said.split()[::2] == ["v1", "v2", "v5", "v9"]


def test_branches_below(users: Users) -> None:
    """`-R` lists the branches at and below a place, each by its path from there."""
    for name in ("features/search", "trunk/deep", "with blank"):
        assert users.run("a", "push", users.url(name)).status == 0
    said = users.ask("branches -R", "", "branches", "-R", users.url(""))
    assert said == "features/search\ntrunk\ntrunk/deep\nwith%20blank\n"
    assert users.run("", "branches", "-R", users.url("trunk")).out == ".\ndeep\n"
    assert users.run("", "branches", "-R", users.url("features")).out == "search\n"
    assert users.run("", "branches", "-R", users.url("none")).out == ""
    assert users.run("", "branches", "-R", users.served.url(f"{users.place}-none")).out == ""
    # Of a folder of repositories, too; one of them is of another system.
    own = f"{users.place}-folder"
    assert users.run("a", "push", users.served.url(f"{own}/alone")).status == 0
    assert users.run("a", "push", users.served.url(f"{own}/deep/x")).status == 0
    assert users.run("", "init-shared-repository", users.served.url(f"{own}/empty")).status == 0
    assert users.run("", "branches", "-R", users.served.url(own)).out == "alone\ndeep/x\n"
    assert users.run("", "branches", "-R", users.served.url(f"{own}/alone")).out == ".\n"


def test_a_tag_whose_name_is_too_long_stays_here(users: Users) -> None:
    """The server refuses the tag alone, like one that differs there."""
    long = "ü" * 513
    users.commit("a", "four")
    users.tag("a", long)
    users.tag("a", "u" * 1024)
    users.tag("a", "short")
    why = f"the tag {long[:40]}...: its name has 1026 bytes, expected no more than 1024"
    pushed = users.run("a", "push", users.url())
    assert (pushed.status, pushed.err) == (0, f"hpss: not pushed: {why}\nPushed up to revision 4.\n2 tags updated.\n")
    assert users.served_entries("tags").keys() == {"v1", "u" * 1024, "short"}
    assert users.run("b", "pull").status == 0
    again = users.run("a", "push", users.url())
    assert again.err == f"hpss: not pushed: {why}\nNo new revisions or tags to push.\n"
    said = users.ask("branch, to the server, a tag too long", "a", "branch", ".", users.url("beside"))
    assert said == f"hpss: not pushed: {why}\nBranched 4 revisions.\n"


def test_info_of_a_shared_repository(users: Users) -> None:
    words = ("info", "-v", users.url(""))
    users.forget("nobody")
    assert "3 revisions\n" in users.ask("info -v, shared, not met", "", *words)
    said = users.ask("info -v", "", *words)
    assert said.startswith("Shared repository")
    assert re.search(r"Repository:\n +3 revisions\n +[1-9][0-9]* KiB\n", said)
    said = users.run("", "info", "-vv", users.url()).out
    assert "1 committer" in said
    assert "3 revisions\n" in said


def test_a_branch_is_removed_with_all_that_belongs_to_it(users: Users) -> None:
    assert users.run("", "config", "-d", users.url(), "answer=42").status == 0
    assert users.ask("config", "", "config", "-d", users.url(), "answer") == "42\n"
    assert users.run("", "tag", "-d", users.url(), "v3").status == 0
    users.ask("remove-branch", "", "remove-branch", users.url())
    assert users.served_tip() is None
    assert users.run("a", "push", users.url()).status == 0
    assert users.served_entries("tags").keys() == {"v1"}
    assert users.served_entries("config") == {}


def test_a_branch_is_called_otherwise(users: Users) -> None:
    words = ("nick", "-d", users.url())
    assert users.ask("nick, set, not remembered", "", *words, "other") == ""
    assert users.ask("nick", "", *words) == "other\n"
    assert users.ask("nick, set", "", *words, "third") == ""
    assert users.ask("nick", "a", *words) == "third\n"
    assert users.served_entries("config")[""] == b"nickname = third\n"
    assert users.run("", "checkout", "--lightweight", users.url(), "light").status == 0
    assert users.run("light", "nick", "fourth").status == 0
    assert users.run("light", "nick").out == "fourth\n"


def test_a_repository_is_made(users: Users) -> None:
    there = users.served.url(f"{users.place}-shared")
    assert "Shared repository (format" in users.ask("init-shared-repository", "", "init-shared-repository", there)
    without = users.served.url(f"{users.place}-without")
    assert "Shared repository (format" in users.run("", "init-shared-repository", "--no-trees", without).out
    assert "Shared repository (format" in users.run("", "info", without).out
    # That none has trees there is no matter of those made here.
    assert users.run("a", "push", f"{without}/trunk").status == 0
    assert users.run("", "branch", f"{without}/trunk", "of-without").status == 0
    assert (users.path("of-without") / "one").exists()
    assert "already exists" in users.run("", "init-shared-repository", there).err
    made = users.run("", "init", f"{there}/x")
    assert made.status == 3
    assert "begins with its first revision" in made.err


def test_a_push_to_where_a_repository_was_deleted(users: Users) -> None:
    """The push that recreates the repository sends the tags, too, though its user has seen them there before."""
    place = f"{users.place}-anew"
    users.commit("b", "beside")
    assert users.run("a", "push", users.served.url(f"{place}/t")).status == 0
    for where in ("b", "a"):
        shutil.rmtree(users.served.root / place)
        users.ask("push, repository made anew", "a", "push", "-d", f"../{where}", users.served.url(f"{place}/t"))
        assert users.served_tip(".", f"{place}/t") == users.tip(where)
        view = PackRepository(LocalTransport(users.served.root), f"{place}/t").snapshot().state
        assert [key for key, _ in view.map("tags").items()] == [b".\0v1"]


def test_from_one_place_on_the_server_to_another(users: Users) -> None:
    elsewhere = f"{users.place}-elsewhere"
    users.ask("branch, to another repository", "", "branch", users.url(), users.served.url(elsewhere))
    assert users.served_tip(".", elsewhere) == users.served_tip()
    # A branch that is there already is none that was made, be it the same.
    for _ in range(2):
        assert "Already a branch" in users.refused("", "branch", users.url(), users.served.url(elsewhere))
        users.forget("nobody")
    users.commit("a", "four")
    assert "Already a branch" in users.run("a", "branch", ".", users.url()).err
    assert users.served_tip() == users.served_tip(".", elsewhere)


def test_from_here_to_the_server(users: Users) -> None:
    """`brz branch` to a URL acts as a push that creates the branch, and remembers no location."""
    assert users.ask("branch, to the server", "a", "branch", ".", users.url("made")) == "Branched 3 revisions.\n"
    assert users.served_tip("made") == users.tip("a")
    assert users.served_entries("tags", "made") == users.tags("a")
    users.ask("branch, to the server", "a", "branch", "-r", "2", ".", users.served.url(f"{users.place}-made"))
    tip = users.served_tip(".", f"{users.place}-made")
    assert tip is not None
    assert tip[0] == 2
    assert "cannot be stacked on" in users.run("a", "branch", "--stacked", ".", users.url("stacked")).err


# -- what is refused


def test_what_is_not_supported_is_said_in_a_line(users: Users) -> None:
    said = users.ask("branch --stacked", "", "branch", "--stacked", users.url(), "c", status=3)
    assert said.startswith("brz: ERROR: a branch of an hpss:// server cannot be stacked on")
    assert said.count("\n") == 1
    users.make("old", "1.14")
    users.commit("old", "one")
    users.make("empty")
    for where, words, expected in (
        ("a", ["push", "--stacked-on", users.url(), users.url("stacked")], "cannot be stacked on"),
        ("old", ["push", users.url("old")], "brz upgrade --2a"),
        ("empty", ["push", users.url("empty")], "commit first"),
        ("a", ["push", "hpss://127.0.0.1:1/x"], "ERROR: Connection error: cannot connect to 127.0.0.1:1: Connection"),
    ):
        refused = users.run(where, *words)
        assert (refused.status, refused.err.count("\n"), refused.counts.rounds) == (3, 1, 0), refused
        assert expected in refused.err


def test_two_users(served: Served, tmp_path: Path) -> None:
    """A few of the steps of `brz_two_users`, which runs as many as it is asked for."""
    model = Model(tmp_path, served, 1)
    for _ in range(12):
        assert model.change(), "\n".join(model.different)
        model.read()
    assert not model.different, "\n".join(model.different)
