"""A branch with `append_revisions_only` keeps its line of first parents, whoever knows of it."""

from __future__ import annotations

import pytest
from brz_sides import Begin, Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

OPTION = "append_revisions_only"

REFUSED = (
    "brz: ERROR: Operation denied because it would change the main history, which is not permitted by the "
    'append_revisions_only setting on branch "URL/trunk/".\n'
)


def set_option(users: Users) -> None:
    """The option is set, which user b does not know."""
    users.ask("config, an option set", "a", "config", "-d", users.url(), f"{OPTION}=True")


@pytest.fixture
def users(changed: Begin) -> Users:
    return changed(set_option)


def served_revno(users: Users) -> int:
    tip = users.served_tip()
    assert tip is not None
    return tip[0]


def kept(users: Users) -> None:
    with users.branch("a") as branch:
        assert users.served_tip() == (3, branch.get_rev_id(3))


def test_a_push_that_overwrites(users: Users) -> None:
    said = users.ask("push --overwrite, append only", "a", "push", "--overwrite", "-r", "2", status=3)
    assert said.endswith(REFUSED)
    said = users.ask("push --overwrite, append only", "b", "push", "--overwrite", "-r", "2", users.url(), status=3)
    assert said == REFUSED
    kept(users)
    users.forget("b")
    words = ("push", "--overwrite", "-r", "2", users.url())
    assert users.ask("push --overwrite, append only, not remembered", "b", *words, status=3) == REFUSED
    kept(users)
    users.commit("b", "four")
    assert "Pushed up to revision 4." in users.ask("push --overwrite", "b", "push", "--overwrite", users.url())
    # The option is no more: what is remembered of it refuses nothing.
    users.forget("b")
    assert users.run("b", "config", "-d", users.url(), "--remove", OPTION).status == 0
    assert users.run("a", "push", "--overwrite", "-r", "2").status == 0
    assert served_revno(users) == 2


def test_a_push_that_makes_the_tip_one_that_was_merged(users: Users) -> None:
    """The main line would be another, though nothing is lost."""
    assert users.run("", "branch", "-r", "2", str(users.path("b")), "c").status == 0
    users.commit("c", "other")
    assert users.run("c", "merge", "../b").status == 0
    users.commit_merge("c")
    words = ("push", users.url())
    assert users.ask("push, merged, append only, not remembered", "c", *words, status=3) == REFUSED
    assert users.ask("push", "c", *words, status=3) == REFUSED
    kept(users)
    assert users.run("a", "merge", "../c").status == 0
    users.commit_merge("a")
    assert "Pushed up to revision 4." in users.ask("push", "a", "push")
    assert "No new revisions" in users.ask("push, behind", "b", "push", users.url())


def test_uncommit(users: Users) -> None:
    words = ("uncommit", "--force", users.url())
    assert users.ask("uncommit, append only", "a", *words, status=3).endswith(REFUSED)
    assert users.run("b", *words).err == REFUSED
    kept(users)
    for kind in ("--lightweight", "-q"):
        assert users.run("", "checkout", kind, users.url(), f"c{kind}").status == 0
        done = users.run(f"c{kind}", "uncommit", "--force")
        assert (done.status, done.err) == (3, REFUSED), done.said
    kept(users)


def test_a_checkout(users: Users) -> None:
    assert users.run("", "checkout", users.url(), "c", XDG_CACHE_HOME=str(users.cache("c"))).status == 0
    assert users.run("", "branch", "-r", "2", str(users.path("a")), "other").status == 0
    words = ("pull", "--overwrite", "../other")
    assert users.ask("pull --overwrite, of a checkout, append only", "c", *words, status=3).endswith(REFUSED)
    kept(users)
    users.add("c", "four")
    users.ask("commit, of a checkout, met", "c", "commit", "-m", "four")
    assert users.served_tip() == users.tip("c")
    assert served_revno(users) == 4


def test_the_options_have_changed_since(users: Users) -> None:
    """Whoever takes the branch for one that may be overwritten is told by the server that it is not as he knows it."""
    users.ask("config, an option set, not as remembered", "b", "config", "-d", users.url(), "answer=42")
    assert users.run("a", "uncommit", "--force", users.url()).err.endswith(REFUSED)
    assert users.run("b", "config", "-d", users.url(), f"{OPTION}=False").status == 0
    assert users.run("a", "push", "--overwrite", "-r", "2").status == 0
    assert served_revno(users) == 2
