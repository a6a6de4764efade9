"""Each command of brz over hpss:// does what it does elsewhere, in the round trips of `budgets.toml` and without a VFS
call: plugins.breezy_branch, plugins.breezy_compat, plugins.breezy_dir, plugins.breezy_guess, plugins.breezy_history,
plugins.breezy_inter, plugins.breezy_push, plugins.breezy_remote, plugins.breezy_repository, plugins.breezy_server,
plugins.breezy_transport."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest
from brz_sides import BUDGETS, Users
from git_sides import Served

from smartserver.plugins import (  # noqa: F401  # What the commands run in a process of their own.
    breezy_branch,
    breezy_compat,
    breezy_dir,
    breezy_guess,
    breezy_history,
    breezy_inter,
    breezy_push,
    breezy_remote,
    breezy_repository,
    breezy_server,
    breezy_transport,
)

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LARGE = 400_000
"""Bytes nobody would send twice; a push of this much announces its graph first."""


def large(seed: int) -> bytes:
    return random.Random(seed).randbytes(LARGE)


def test_every_budget_is_used() -> None:
    used = [
        name
        for file in Path(__file__).parent.glob("test_brz_*.py")
        for name in re.findall(r'ask\(\s*"([^"]+)"', file.read_text())
    ]
    assert set(used) == BUDGETS.keys()


# -- push


def test_push_makes_what_is_not_there(users: Users) -> None:
    said = users.ask("push, new repository", "a", "push", users.served.url(f"{users.place}-made"))
    assert said == "Created new branch.\n"
    assert users.served_tip(".", f"{users.place}-made") == users.tip("a")
    assert "Created new branch." in users.ask("push, new branch", "a", "push", users.url("topic/deep"))
    assert users.served_tip("topic/deep") == users.tip("a")
    assert users.run("a", "push", f"{users.url('topic')},branch=other").status == 0
    assert users.served_tip("topic/other") == users.tip("a")


def test_push(users: Users) -> None:
    assert users.ask("push, nothing new", "a", "push") == (
        "Using saved push location: URL/trunk/\nNo new revisions or tags to push.\n"
    )
    users.commit("a", "four")
    users.tag("a", "v4")
    said = users.ask("push, tags", "a", "push", "-v")
    assert "Pushed up to revision 4.\n1 tag updated.\n" in said
    assert "commit four" in said
    assert "commit three" not in said
    assert users.served_tip() == users.tip("a")
    users.commit("a", "five")
    users.commit("a", "six")
    assert "Pushed up to revision 5." in users.ask("push -r", "a", "push", "-r", "5")
    assert users.served_tip() == (5, users.tip("a")[1]) or users.served_tip()[0] == 5  # type: ignore[index]
    # A branch that is behind the server's is no reason to complain.
    assert "No new revisions" in users.ask("push, behind", "b", "push", users.url())
    assert "Pushed up to revision 2." in users.ask("push --overwrite", "a", "push", "-r", "2", "--overwrite")
    assert users.served_tip()[0] == 2  # type: ignore[index]


def test_a_push_that_has_diverged_is_refused(users: Users) -> None:
    users.commit("a", "four")
    users.ask("push", "a", "push")
    users.commit("b", "other", large(1))
    users.tag("b", "vb")
    before = users.served_tip()
    done = users.run("b", "push", users.url())
    assert done.status == 3
    assert (
        done.err
        == 'brz: ERROR: These branches have diverged.  See "brz help diverged-branches" for more information.\n'
    )
    assert done.counts.rounds == 2
    users.ask("push, diverged", "b", "push", users.url(), status=3)
    assert users.served_tip() == before
    assert "vb" not in users.run("b", "tags", "-d", users.url()).out


def test_tags_in_conflict(users: Users) -> None:
    users.tag("a", "v1", 2)
    assert "Conflicting tags:\n    v1\n" in users.run("a", "push").said
    assert "1 tag updated." in users.ask("push --overwrite-tags", "a", "push", "--overwrite-tags")
    assert users.run("b", "pull").status == 1
    assert users.tags("a") != users.tags("b")
    users.run("b", "pull", "--overwrite")
    assert users.tags("a") == users.tags("b")


# -- branch, pull, missing, merge


def test_branch(users: Users) -> None:
    assert users.ask("branch", "", "branch", users.url(), "c") == "Branched 3 revisions.\n"
    assert (users.tip("c"), users.tags("c")) == (users.tip("a"), users.tags("a"))
    users.check("c")
    users.ask("branch -r", "", "branch", "-r", "2", users.url(), "d")
    assert users.tip("d")[0] == 2
    shutil.rmtree(users.path("d"))
    assert users.run("", "init-shared-repository", "-q", "s").status == 0
    users.ask("branch, into a shared repository", "s", "branch", users.url(), "one")
    users.commit("a", "four", large(2))
    assert users.run("a", "push", users.url("two")).status == 0
    assert users.run("", "branch", users.url(), "e").counts.bytes_down < LARGE / 2
    again = users.run("s", "branch", users.url(), "three")
    assert again.status == 0
    assert again.counts.bytes_down < 2_000, "what the shared repository holds came once more"
    assert "Not a branch" in users.ask("branch, nothing there", "", "branch", users.url("none"), "f", status=3)


def test_pull(users: Users) -> None:
    assert users.ask("pull, nothing new", "b", "pull") == (
        "Using saved parent location: URL/trunk/\nNo revisions or tags to pull.\n"
    )
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
    assert users.run("b", "commit", "-q", "-m", "merged").status == 0
    assert "Pushed up to revision 5." in users.run("b", "push", users.url()).err
    assert users.run("a", "pull", users.url()).status == 0
    assert users.tip("a") == users.tip("b")
    users.check("a")


# -- checkouts


def test_a_checkout(users: Users) -> None:
    users.ask("checkout", "", "checkout", users.url(), "c")
    users.path("c/new").write_text("new\n")
    assert users.run("c", "add", "-q").status == 0
    assert "Committed revision 4." in users.ask("commit, of a checkout", "c", "commit", "-m", "bound")
    assert users.served_tip() == users.tip("c")
    users.ask("tag, of a checkout", "c", "tag", "bound")
    assert "v1" in users.run("", "tags", "-d", users.url()).out
    assert users.run("b", "pull").status == 0
    assert users.tags("b") == users.tags("c")
    users.commit("b", "five")
    assert users.run("b", "push", users.url()).status == 0
    said = users.ask("update", "c", "update")
    assert "Updated to revision 5 of branch URL/trunk" in said
    assert users.tip("c") == users.tip("b")
    users.commit("b", "six")
    assert users.run("b", "push", users.url()).status == 0
    users.path("c/late").write_text("late\n")
    assert users.run("c", "add", "-q").status == 0
    late = users.run("c", "commit", "-m", "late")
    assert late.status == 3
    assert "out of date" in late.err


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
    assert said == "There are no locks to break: a push to URL/trunk/ is one request, and locks nothing.\n"


def test_what_is_changed_in_a_branch(users: Users) -> None:
    assert users.ask("tag", "", "tag", "-d", users.url(), "v3") == "Created tag v3.\n"
    assert users.run("", "tag", "-d", users.url(), "v1", "--delete").status == 0
    assert users.run("", "tags", "-d", users.url()).out.split() == ["v3", "3"]
    users.ask("config, an option set", "", "config", "-d", users.url(), "answer=42")
    assert users.ask("config", "", "config", "-d", users.url(), "answer") == "42\n"
    assert "You can restore the old tip" in users.ask("uncommit", "", "uncommit", "--force", "--keep-tags", users.url())
    assert users.served_tip() is not None
    assert users.served_tip()[0] == 2  # type: ignore[index]
    users.ask("remove-branch", "", "remove-branch", users.url())
    assert users.served_tip() is None
    assert users.run("", "remove-branch", users.url()).status == 3
    # What belonged to it went with it.
    assert users.run("a", "push", users.url()).status == 0
    assert users.run("", "tags", "-d", users.url()).out.split() == ["v1", "1"]
    assert users.run("", "config", "-d", users.url(), "answer").status == 3


def test_a_repository_is_made(users: Users) -> None:
    there = users.served.url(f"{users.place}-shared")
    assert "Shared repository with trees" in users.ask("init-shared-repository", "", "init-shared-repository", there)
    assert "already exists" in users.run("", "init-shared-repository", there).err
    made = users.run("", "init", f"{there}/x")
    assert made.status == 3
    assert "made by the first push" in made.err


def test_from_one_place_on_the_server_to_another(users: Users) -> None:
    users.ask("branch, from the server to the server", "", "branch", users.url(), users.url("copy"))
    assert users.served_tip("copy") == users.served_tip()
    elsewhere = f"{users.place}-elsewhere"
    assert users.run("", "branch", users.url(), users.served.url(elsewhere)).status == 0
    assert users.served_tip(".", elsewhere) == users.served_tip()


# -- what is refused


def test_what_is_not_supported_is_said_in_a_line(users: Users, served: Served) -> None:
    said = users.ask("branch --stacked", "", "branch", "--stacked", users.url(), "c", status=3)
    assert said.startswith("brz: ERROR: a branch of an hpss:// server cannot be stacked on")
    assert said.count("\n") == 1
    stacked = users.run("a", "push", "--stacked-on", users.url(), users.url("stacked"))
    assert (stacked.status, stacked.err.count("\n"), stacked.counts.rounds) == (3, 1, 0), stacked
    users.path("old").mkdir()
    assert users.run("old", "init", "-q", "--format=1.14").status == 0
    users.commit("old", "one")
    old = users.run("old", "push", users.url("old"))
    assert (old.status, old.counts.rounds) == (3, 0)
    assert "brz upgrade --2a" in old.err
    users.path("empty").mkdir()
    assert users.run("empty", "init", "-q").status == 0
    empty = users.run("empty", "push", users.url("empty"))
    assert (empty.status, empty.counts.rounds) == (3, 0)
    assert "commit first" in empty.err
    nobody = users.run("a", "push", "hpss://127.0.0.1:1/x")
    assert nobody.status == 3
    assert nobody.err == "brz: ERROR: Connection error: cannot connect to 127.0.0.1:1: Connection refused \n"
