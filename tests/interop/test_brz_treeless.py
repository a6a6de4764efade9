"""Commands that look for a tree first, or write to both of two places, take a branch on a server for what it is: one
without a tree; a checkout whose branch was overwritten finds what it is based on: plugins.breezy.content,
plugins.breezy.controldir, plugins.breezy.inter, plugins.breezy.repository."""

from __future__ import annotations

import pytest
from brz_sides import Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def test_there_is_no_tree(users: Users) -> None:
    said = users.ask("status, of a server", "", "status", users.url(), status=3)
    assert said == 'brz: ERROR: No WorkingTree exists for "URL/trunk/".\n'
    tip = users.tip("a")[1].decode()
    assert users.ask("revision-info", "", "revision-info", "-d", users.url()) == f"3 {tip}\n"
    assert f"revision-id: {tip}\n" in users.ask("version-info", "", "version-info", users.url())
    assert users.ask("ancestry", "", "ancestry", users.url()).endswith(f"{tip}\n")
    assert "   3 a <a@example.org>" in users.ask("stats", "", "stats", users.url())
    for words in (["revision-info", "-d"], ["stats"], ["ancestry"]):
        assert "Not a branch" in users.run("", *words, users.url("none")).err
    # It opens what is below the branch by itself: there is no branch.
    assert "Not a branch" in users.run("", "stats", users.url("trunk/one")).err


@pytest.mark.unbanned("doc/howto/use_breezy.md: such a pull asks what the branch is as often as Breezy opens it")
def test_a_branch_is_pulled_into_one_on_the_server(users: Users) -> None:
    users.commit("b", "four")
    assert users.run("b", "push", users.url("other")).status == 0
    pulled = users.run("", "pull", "-d", users.url(), users.url("other"))
    assert (pulled.status, pulled.said) == (0, "Now on revision 4.\n")
    assert users.served_tip() == users.served_tip("other") == users.tip("b")
    users.commit("a", "else")
    refused = users.run("", "pull", "-d", users.url(), str(users.path("a")))
    assert (refused.status, "These branches have diverged." in refused.err) == (3, True)
    assert users.served_tip() == users.tip("b")


def test_send_from_one_branch_on_the_server_to_another(users: Users) -> None:
    tip = users.commit("b", "four")
    assert users.run("b", "push", users.url("other")).status == 0
    users.commit("a", "else")
    assert users.run("a", "push").status == 0
    sent = users.run("", "send", "-f", users.url("other"), "-o", "sent", users.url())
    assert sent.status == 0, sent.said
    assert users.run("a", "merge", "../sent").status == 0
    users.commit_merge("a")
    with users.branch("a") as branch:
        assert branch.repository.has_revision(tip)
    users.check("a")


def test_a_lightweight_checkout_whose_branch_was_overwritten(users: Users) -> None:
    assert users.run("", "branch", "-r", "2", users.url(), "c").status == 0
    users.commit("c", "else")
    assert users.run("c", "push", users.url("else")).status == 0
    for name in ("light", "pulled"):
        assert users.run("", "checkout", "--lightweight", users.url(), name).status == 0
    (users.path("light") / "one").write_text("changed\n")
    assert users.run("light", "commit", "-m", "mine").status == 0
    assert users.run("pulled", "update").status == 0
    assert users.run("c", "push", "--overwrite", users.url()).status == 0
    updated = users.run("light", "update")
    assert (updated.status, "Updated to revision 3" in updated.err) == (0, True), updated.said
    assert users.run("light", "commit", "-m", "mine again").status == 0
    assert (users.path("light") / "one").read_text() == "changed\n"
    assert users.run("pulled", "update").status == 0
    assert users.run("a", "push", users.url("other")).status == 0
    pulled = users.run("pulled", "pull", "--overwrite", users.url("other"))
    assert (pulled.status, "Now on revision 3." in pulled.said) == (0, True), pulled.said
    assert users.run("pulled", "status").out == ""
    assert users.served_tip() == users.tip("a")
