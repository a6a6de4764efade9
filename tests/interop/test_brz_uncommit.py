"""An uncommit removes the tags of just the revisions that it removes from the ancestry, as stock Breezy does:
plugins.breezy.patches, plugins.breezy.remote.

A branch with `append_revisions_only` keeps its line of first parents, also for a client that lacks the option."""

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


OPTION = "append_revisions_only"

REFUSED = (
    "brz: ERROR: Operation denied because it would change the main history, which is not permitted by the "
    'append_revisions_only setting on branch "URL/trunk/".\n'
)


def set_option(strict: Users) -> None:
    """The option is set, which user b does not know."""
    strict.ask("config, an option set", "a", "config", "-d", strict.url(), f"{OPTION}=True")


@pytest.fixture
def strict(changed: Begin) -> Users:
    return changed(set_option)


def served_revno(strict: Users) -> int:
    tip = strict.served_tip()
    assert tip is not None
    return tip[0]


def kept(strict: Users) -> None:
    with strict.branch("a") as branch:
        assert strict.served_tip() == (3, branch.get_rev_id(3))


def test_a_push_that_overwrites(strict: Users) -> None:
    said = strict.ask("push --overwrite, append only", "a", "push", "--overwrite", "-r", "2", status=3)
    assert said.endswith(REFUSED)
    said = strict.ask("push --overwrite, append only", "b", "push", "--overwrite", "-r", "2", strict.url(), status=3)
    assert said == REFUSED
    kept(strict)
    strict.forget("b")
    words = ("push", "--overwrite", "-r", "2", strict.url())
    assert strict.ask("push --overwrite, append only, not remembered", "b", *words, status=3) == REFUSED
    kept(strict)
    strict.commit("b", "four")
    assert "Pushed up to revision 4." in strict.ask("push --overwrite", "b", "push", "--overwrite", strict.url())
    # The option is no more: what is remembered of it refuses nothing.
    strict.forget("b")
    assert strict.run("b", "config", "-d", strict.url(), "--remove", OPTION).status == 0
    assert strict.run("a", "push", "--overwrite", "-r", "2").status == 0
    assert served_revno(strict) == 2


def test_a_push_that_makes_the_tip_one_that_was_merged(strict: Users) -> None:
    """The main line would be another, though nothing is lost."""
    assert strict.run("", "branch", "-r", "2", str(strict.path("b")), "c").status == 0
    strict.commit("c", "other")
    assert strict.run("c", "merge", "../b").status == 0
    strict.commit_merge("c")
    words = ("push", strict.url())
    assert strict.ask("push, merged, append only, not remembered", "c", *words, status=3) == REFUSED
    assert strict.ask("push", "c", *words, status=3) == REFUSED
    kept(strict)
    assert strict.run("a", "merge", "../c").status == 0
    strict.commit_merge("a")
    assert "Pushed up to revision 4." in strict.ask("push", "a", "push")
    assert "No new revisions" in strict.ask("push, behind", "b", "push", strict.url())


def test_uncommit(strict: Users) -> None:
    words = ("uncommit", "--force", strict.url())
    assert strict.ask("uncommit, append only", "a", *words, status=3).endswith(REFUSED)
    assert strict.run("b", *words).err == REFUSED
    kept(strict)
    for kind in ("--lightweight", "-q"):
        assert strict.run("", "checkout", kind, strict.url(), f"c{kind}").status == 0
        done = strict.run(f"c{kind}", "uncommit", "--force")
        assert (done.status, done.err) == (3, REFUSED), done.said
    kept(strict)


def test_a_checkout(strict: Users) -> None:
    assert strict.run("", "checkout", strict.url(), "c", XDG_CACHE_HOME=str(strict.cache("c"))).status == 0
    assert strict.run("", "branch", "-r", "2", str(strict.path("a")), "other").status == 0
    words = ("pull", "--overwrite", "../other")
    assert strict.ask("pull --overwrite, of a checkout, append only", "c", *words, status=3).endswith(REFUSED)
    kept(strict)
    strict.add("c", "four")
    strict.ask("commit, of a checkout, met", "c", "commit", "-m", "four")
    assert strict.served_tip() == strict.tip("c")
    assert served_revno(strict) == 4


def test_the_options_have_changed_since(strict: Users) -> None:
    """If the client believes that the branch may be overwritten, the server answers that the branch has changed."""
    strict.ask("config, an option set, not as remembered", "b", "config", "-d", strict.url(), "answer=42")
    assert strict.run("a", "uncommit", "--force", strict.url()).err.endswith(REFUSED)
    assert strict.run("b", "config", "-d", strict.url(), f"{OPTION}=False").status == 0
    assert strict.run("a", "push", "--overwrite", "-r", "2").status == 0
    assert served_revno(strict) == 2
