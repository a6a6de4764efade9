"""An uncommit removes the tags of just the revisions that it removes from the ancestry, as stock Breezy does:
plugins.breezy.patches, plugins.breezy.remote."""

from __future__ import annotations

import pytest
from brz_sides import Begin, Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def merge(users: Users) -> None:
    """Merge `side`, which begins at revision 1, into `trunk`, with tags on all revisions."""
    assert users.run("", "branch", "-q", "-r", "1", "a", "side").status == 0
    users.commit("side", "beside")
    users.tag("side", "beside")
    assert users.run("a", "merge", "-q", "../side").status == 0
    users.commit_merge("a")
    users.tag("a", "v4")
    assert users.run("a", "push", "-q", users.url()).status == 0
    assert users.served_entries("tags").keys() == {"v1", "beside", "v4"}


@pytest.fixture
def merged(changed: Begin) -> Users:
    return changed(merge)


def test_of_a_url(merged: Users) -> None:
    merged.ask("uncommit, not remembered", "", "uncommit", "--force", merged.url())
    assert merged.served_entries("tags").keys() == {"v1"}


def test_of_what_is_here_in_part(merged: Users) -> None:
    """The removed merge and the kept revisions have ancestors here, over some that are missing."""
    for name in ("five", "six"):
        merged.commit("a", name)
    merged.commit("b", "more")
    merged.tag("b", "b4")
    assert merged.run("a", "merge", "-q", "../b").status == 0
    merged.commit_merge("a")
    assert merged.run("a", "push", "-q", merged.url()).status == 0
    assert merged.run("b", "revno", merged.url()).out == "7\n"
    assert merged.run("b", "uncommit", "--force", merged.url()).status == 0
    assert merged.served_entries("tags").keys() == {"v1", "beside", "v4"}


def test_of_several_revisions(merged: Users) -> None:
    merged.commit("a", "five")
    merged.tag("a", "v5")
    merged.tag("a", "v3", 3)
    merged.tag("a", "v2", 2)
    assert merged.run("a", "push", "-q", merged.url()).status == 0
    merged.ask("uncommit, not remembered", "", "uncommit", "--force", "-r", "2", merged.url())
    assert merged.served_entries("tags").keys() == {"v1", "v2"}


@pytest.mark.parametrize("kind", ["light", "bound"])
@pytest.mark.parametrize("pending", ["then", "before"])
def test_what_is_pending_in_a_checkout_keeps_its_tags(merged: Users, kind: str, pending: str) -> None:
    """A merge from before the uncommit is based on the removed tip, so the tip stays in the ancestry."""
    assert merged.run("", "checkout", *(["--lightweight"] if kind == "light" else []), merged.url(), kind).status == 0
    if pending == "before":
        assert merged.run("", "branch", "-q", "a", "ahead").status == 0
        merged.commit("ahead", "five")
        assert merged.run(kind, "merge", "-q", "--force", "../ahead").status == 0
    if kind == "light":
        merged.ask("uncommit of a merge, lightweight", kind, "uncommit", "--force")
    else:
        assert merged.run(kind, "uncommit", "--force").status == 0
    assert merged.served_entries("tags").keys() == {"v1", "beside", *(["v4"] if pending == "before" else [])}
    if pending == "then":
        assert merged.run(kind, "status", "--short", "--show-ids").out.count("beside") == 2  # The file, and the merge.


def test_what_would_be_removed_is_what_is_there_now(merged: Users) -> None:
    """A dry run asks the server: it makes no request that would be refused."""
    assert merged.run("", "uncommit", "--force", merged.url()).status == 0
    done = merged.run("a", "uncommit", "--force", "--dry-run", merged.url())
    assert "three" in done.out, done.said


def test_a_dry_run_in_a_bound_branch_whose_master_has_moved_says_nothing_twice(users: Users) -> None:
    assert users.run("", "checkout", "-q", users.url(), "bound").status == 0
    assert users.run("bound", "update").status == 0
    users.commit("a", "ahead")
    assert users.run("a", "push", users.url()).status == 0
    done = users.run("bound", "uncommit", "--force", "--dry-run")
    assert (done.status, "is out of date with master branch" in done.err) == (3, True), done.said
    assert done.out.count("Dry-run") == 1


def test_a_commit_in_a_bound_branch_does_not_bring_back_what_was_uncommitted(users: Users) -> None:
    assert users.run("", "checkout", "-q", users.url(), "bound").status == 0
    assert users.run("a", "uncommit", "--force", users.url()).status == 0
    tip = users.served_tip()
    (users.path("bound") / "one").write_text("mine\n")
    assert "is out of date with master branch" in users.refused("bound", "commit", "-m", "mine")
    assert users.served_tip() == tip
    assert users.run("bound", "status", "--short").out == " M  one\n"
