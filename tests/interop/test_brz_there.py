"""A remote object that a local command refers to is created first, or exists; otherwise nothing changes here:
plugins.breezy.checkouts, plugins.breezy.controldir.

plugins.breezy.history: of a branch only the history of the revision that was named is sent, in one round trip, or in
two where a look at the branch must tell which it is; and commands do their work where the knowledge of a remote is
missing or old."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from breezy.workingtree import WorkingTree
from brz_sides import SHIM, Begin, Users, in_process
from git_sides import TIMEOUT, Done, environment

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def test_a_checkout_is_switched_to_a_branch_that_is_made(users: Users) -> None:
    assert users.run("", "checkout", users.url(), "c").status == 0
    assert "Switched to branch at URL/made/" in users.ask("switch -b", "c", "switch", "-b", users.url("made"))
    assert users.run("", "checkout", "--lightweight", users.url(), "light").status == 0
    said = users.ask("switch -b, lightweight", "light", "switch", "-b", "beside")
    assert "Switched to branch at URL/beside/" in said
    assert users.served_tip("made") == users.served_tip("beside") == users.served_tip()


def test_switch_b_where_the_branch_is_itself_the_repository(users: Users) -> None:
    """A sibling of the branch is another repository; a branch below it is in the same."""
    own = f"{users.place}-own"
    assert users.run("a", "push", users.served.url(own)).status == 0
    for met in (True, False):
        checkout = ("checkout", "--lightweight", users.served.url(own), f"light{met}")
        assert users.run("", *checkout).status == 0
        if not met:
            users.forget(checkout[-1])
        made = f"{own}/below{met}"
        users.ask("switch -b, lightweight", checkout[-1], "switch", "-b", users.served.url(made))
        assert users.served_tip(f"below{met}", own) == users.served_tip()
        assert users.run(checkout[-1], "switch", users.served.url(own)).status == 0
        if not met:
            users.forget(checkout[-1])
        users.ask("switch -b, lightweight", checkout[-1], "switch", "-b", f"sibling{met}")
        assert users.served_tip(".", f"{Path(own).parent}/sibling{met}".removeprefix("./")) == users.served_tip()
        assert users.run(checkout[-1], "status").said == ""
        for gone in ("siblingTrue", "siblingFalse"):
            shutil.rmtree(users.served.root / gone, ignore_errors=True)


@pytest.mark.parametrize("place", ["here", "there"])
def test_branch_of_a_revision_that_the_branch_does_not_reach(users: Users, place: str) -> None:
    """Only a tag names the revision."""
    users.tag("a", "v3", 3)
    assert users.run("a", "push", "-q", users.url()).status == 0
    before = users.served_tip()
    assert users.run("", "uncommit", "--force", "--keep-tags", users.url()).status == 0
    done = users.run("", "branch", "-r", "tag:v3", users.url(), users.url("made") if place == "there" else "made")
    assert (done.status, done.err) == (0, "Branched 3 revisions.\n")
    assert (users.served_tip("made") if place == "there" else users.tip("made")) == before
    words = "branch", "-r", "revid:none", users.url(), users.url("more") if place == "there" else "more"
    done = users.run("", *words)
    assert (done.status, done.err.count("\n")) == (3, 1), done.said
    assert "has no revision" in done.err


def test_what_the_branch_does_not_reach_is_a_place_to_begin(users: Users) -> None:
    """The revision begins a range, or precedes another; no local repository has it."""
    folder, spec = "light", f"revid:{users.tip('a')[1].decode()}"
    assert users.run("a", "push", "-q", users.url()).status == 0
    assert users.run("", "checkout", "-q", "--lightweight", "-r", "1", users.url(), folder).status == 0
    assert users.run("", "branch", "-q", "-r", "1", users.url(), "one").status == 0
    assert users.run("", "uncommit", "--force", "--keep-tags", users.url()).status == 0
    users.forget(folder)
    log = users.fine(folder, "log", "--line", "-r", f"2..{spec}", users.url())
    assert re.findall("commit .*", log.out) == ["commit three", "commit two"]
    assert users.run(folder, "cat", "-r", f"before:{spec}", f"{users.url()}/two").out == "two\n"
    missing = users.run("one", "missing", "-q", "--line", "-r", f"2..{spec}", users.url())
    assert (missing.status, missing.err) == (1, ""), missing.said


@pytest.mark.unbanned("cat of an ID without revid: looks for the file twice in a tree that it was not told to read")
def test_the_tip_of_another_branch(users: Users) -> None:
    """In the same repository, the tip is named by URL and by id, and as the base of a checkout's changes."""
    assert users.run("a", "push", "-q", users.url()).status == 0
    assert users.run("", "branch", "-q", "-r", "1", users.url(), users.url("short")).status == 0
    named = users.tip("a")[1].decode()
    log = users.run("", "log", "--line", "-r", f"branch:{users.url()}", users.url("short"))
    assert (log.status, re.findall("commit .*", log.out)) == (0, ["commit three"]), log.said
    cat = users.run("", "cat", "-r", named, f"{users.url('short')}/two")
    assert (cat.status, cat.out) == (0, "two\n"), cat.said
    assert users.run("", "branch", "-q", "-r", named, users.url("short"), "got").status == 0
    assert users.tip("got")[1].decode() == named
    assert users.run("", "checkout", "-q", "--lightweight", users.url("short"), "light").status == 0
    for spec in (f"revid:{named}", named):
        status = users.run("light", "status", "-r", f"{spec}..")
        assert (status.status, "removed:" in status.out) == (0, True), status.said


def test_a_clone_by_gits_remote_helper_for_breezy(users: Users) -> None:
    """Breezy converts the revisions that it reads from the server."""
    assert users.run("a", "push", "-q", users.url()).status == 0
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**environment(users.folder / ".home"), "PATH": path, "BRZ_PLUGINS_AT": f"hpss@{SHIM}"}
    clone = ["git", "clone", "-q", f"bzr::{users.url()}", "clone"]
    done = subprocess.run(clone, cwd=users.folder, env=variables, capture_output=True, check=False, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr.decode()
    assert (users.folder / "clone" / "two").read_text() == "two\n"


def test_what_the_branch_does_not_reach_is_merged_and_pulled(users: Users) -> None:
    spec = "tag:v3"
    for name in ("c", "d"):
        assert users.run("", "branch", "-q", "-r", "1", "a", name).status == 0
    users.commit("c", "own")
    users.tag("a", "v3", 3)
    assert users.run("a", "push", "-q", users.url()).status == 0
    assert users.run("", "uncommit", "--force", "--keep-tags", users.url()).status == 0
    done = users.run("c", "merge", "-r", spec, users.url())
    assert (done.status, (users.path("c") / "three").exists()) == (0, True), done.said
    users.commit_merge("c")
    done = users.run("d", "pull", "-r", spec, users.url())
    assert (done.status, users.tip("d")) == (0, users.tip("a")), done.said
    for name in ("c", "d"):
        users.check(name)


def test_branches_of_a_lightweight_checkout(users: Users) -> None:
    for name in ("more", "other/one"):
        assert users.run("a", "push", users.url(name)).status == 0
    assert users.run("", "checkout", "--lightweight", users.url(), "light").status == 0
    for _ in range(2):
        assert users.ask("branches, lightweight", "light", "branches").split() == ["more", "other/one", "*", "trunk"]
        users.forget("light")


@pytest.mark.parametrize("kind", [(), ("--lightweight",)], ids=["heavy", "lightweight"])
def test_a_checkout_stays_what_it_is_where_there_is_nothing_to_switch_to(users: Users, kind: tuple[str, ...]) -> None:
    """The error names the target in the user's words."""
    users.make("local")
    users.commit("local", "one")
    for where, branch in (("c", users.url()), ("of-local", "local")):
        assert users.run("", "checkout", *kind, branch, where).status == 0
        before = users.run(where, "info").out
        for force in ([], ["--force"]):
            refused = users.run(where, "switch", *force, users.url("none"))
            assert (refused.status, refused.err) == (3, 'brz: ERROR: Not a branch: "URL/none/".\n')
            refused = users.run(where, "switch", *force, "hpss://127.0.0.1:1/x")
            assert refused.status == 3
            assert "cannot connect to 127.0.0.1:1" in refused.err
        assert users.run(where, "info").out == before
    assert users.run("c", "switch", "other").err == 'brz: ERROR: Not a branch: "URL/other/".\n'
    if not kind:
        assert "Not a branch" in users.ask("switch, nothing there", "c", "switch", "none", status=3)
    assert "checkout of branch: URL/trunk/" in users.run("c", "info").out


def test_what_is_not_there_changes_nothing_here(users: Users) -> None:
    """Nor does what lies in a branch, or a server that cannot be reached."""
    users.make("new")
    users.path("full").mkdir()

    def here() -> list[object]:
        return [sorted(users.folder.glob("*")), sorted(users.folder.glob("full/*")), *info("b"), *info("new")]

    def info(branch: str) -> list[str]:
        return [users.run("", "info", branch).out, (users.path(branch) / ".bzr/branch/branch.conf").read_text()]

    before = here()
    none, inside = [f'brz: ERROR: Not a branch: "URL/{name}/".\n' for name in ("none", "trunk/one")]
    assert users.ask("pull, nothing there", "b", "pull", "--remember", users.url("none"), status=3) == none
    assert users.ask("bind, nothing there", "b", "bind", users.url("none"), status=3) == none
    for words in (
        "branch {} made", "missing -d b {}", "pull -d b --remember {}", "pull -d new {}", "merge -d b --remember {}",
        "bind -d b {}", "reconfigure --checkout --bind-to {} b", "reconfigure --lightweight-checkout --bind-to {} b",
        "checkout {} made", "checkout {} full", "checkout {} full/made", "checkout --lightweight {} made",
        "checkout --lightweight {} full", "checkout --lightweight {} full/made",
    ):  # fmt: skip
        for url, said in (
            (users.url("none"), none),
            (users.url("trunk/one"), inside),
            ("hpss://127.0.0.1:1/x", "cannot connect to 127.0.0.1:1"),
        ):
            if said != inside or not words.startswith("merge"):  # It merges what has changed in a file.
                assert said in users.refused("", *words.format(url).split()), words
    assert here() == before
    assert users.ask("bind", "b", "bind", users.url()) == ""
    assert "checkout of branch: URL/trunk/" in users.run("b", "info").out


def test_a_branch_that_somebody_else_deleted_is_missing_to_who_has_met_it(users: Users) -> None:
    side = users.url("side")
    assert users.run("a", "push", side).status == 0
    assert users.run("", "checkout", side, "bound").status == 0
    assert users.run("bound", "update").status == 0
    assert users.run("a", "remove-branch", side).status == 0
    assert users.run("bound", "branches", side).status == 0
    for words in (("update",), ("revno", side), ("pull", side), ("update",)):
        assert "Not a branch: " in users.refused("bound", *words)
    assert "Unable to connect to current master branch" in users.refused("bound", "switch", users.url())
    assert users.run("bound", "switch", "--force", users.url()).status == 0
    assert users.tip("bound") == users.served_tip()


# -- aliases of locations, whose answer is the same as for the URL


def edit(users: Users) -> None:
    """`trunk` has two versions of `one`, and users a and b know where they push to and pull from."""
    users.commit("a", "one", b"one\nmore\n")
    assert users.run("a", "push", "-q", users.url()).status == 0
    users.forget("b")


@pytest.fixture
def edited(changed: Begin) -> Users:
    return changed(edit)


def test_an_alias(edited: Users) -> None:
    expected = edited.fine("", "annotate", f"{edited.url()}/one").out
    # A file of a branch that was never met is looked for at its own path, too, as by its URL.
    assert edited.ask("annotate", "b", "annotate", ":parent/one") == expected != ""
    assert edited.fine("a", "annotate", ":push/one").out == expected
    edited.forget("b")
    edited.ask("uncommit, not remembered", "b", "uncommit", "--force", ":parent")
    assert edited.served_tip() == (3, edited.revision("a", 3))


@pytest.mark.unbanned("Breezy looks the alias up before the plugin is loaded, and then the plugin does")
def test_an_alias_in_a_lightweight_checkout(edited: Users) -> None:
    """The server itself says what it stands for."""
    assert edited.run("b", "push", "-q", edited.url("other")).status == 0
    assert edited.run("", "checkout", "--lightweight", "-q", edited.url("other"), "light").status == 0
    assert edited.run("light", "config", f"parent_location={edited.url()}").status == 0
    expected = edited.fine("a", "log", f"{edited.url()}/one").out
    assert edited.fine("light", "log", ":parent/one").out == expected != ""


# -- a named revision, with no more than its history

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
