"""A branch is made on a server from any other by `brz branch`, as over Breezy's own protocol, and none that is there is
touched: plugins.breezy_copy."""

from __future__ import annotations

import pytest
from brz_sides import Users

from smartserver.plugins import breezy_copy  # noqa: F401  # What the commands run in processes of their own.

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def test_a_local_branch_is_branched_to_the_server(users: Users) -> None:
    assert users.ask("branch, to the server", "", "branch", "a", users.url("made")) == "Branched 3 revisions.\n"
    assert users.served_tip("made") == users.tip("a")
    assert users.served_entries("tags", "made") == users.tags("a")
    assert users.run("", "config", "-d", users.url("made"), "parent_location").out == "file://HERE/a/\n"
    before = users.tip("a")
    users.commit("a", "four")
    users.ask("branch -r, to the server", "", "branch", "-r", "2", "a", users.served.url(f"{users.place}-new"))
    assert users.served_tip(".", f"{users.place}-new") == (2, users.revision("a", 2))
    refused = users.ask("branch, to the server, which exists", "", "branch", "a", users.url("made"), status=3)
    assert refused == 'brz: ERROR: Already a branch: "URL/made/".\n'
    assert users.served_tip("made") == before


def test_a_branch_that_is_there_is_not_branched_to(users: Users) -> None:
    users.commit("b", "other")
    assert users.run("b", "push", users.url("other")).status == 0
    assert users.run("a", "push", "-r2", users.url("older")).status == 0
    for name in ("other", "older"):
        before = users.served_tip(name)
        for revision in ("2", "3"):
            refused = users.run("", "branch", "-r", revision, users.url(), users.url(name))
            assert (refused.status, refused.err) == (3, f'brz: ERROR: Already a branch: "URL/{name}/".\n')
        assert users.run("", "branch", users.url(), users.url(name)).status == 3
        assert users.served_tip(name) == before


def test_a_checkout_is_switched_to_a_branch_that_is_made(users: Users) -> None:
    assert users.run("", "checkout", users.url(), "c").status == 0
    assert "Switched to branch at URL/made/" in users.ask("switch -b", "c", "switch", "-b", users.url("made"))
    assert users.run("", "checkout", "--lightweight", users.url(), "light").status == 0
    said = users.ask("switch -b, lightweight", "light", "switch", "-b", "beside")
    assert "Switched to branch at URL/beside/" in said
    assert users.served_tip("made") == users.served_tip("beside") == users.served_tip()


@pytest.mark.parametrize("kind", [(), ("--lightweight",)], ids=["heavy", "lightweight"])
def test_a_checkout_stays_what_it_is_where_there_is_nothing_to_switch_to(users: Users, kind: tuple[str, ...]) -> None:
    assert users.run("", "checkout", *kind, users.url(), "c").status == 0
    before = users.run("c", "info").out
    assert "checkout of branch: URL/trunk/" in before
    assert "Not a branch" in users.run("c", "switch", "none").err
    for force in ([], ["--force"]):
        assert users.run("c", "switch", *force, users.url("none")).status == 3
        refused = users.run("c", "switch", *force, "hpss://127.0.0.1:1/x")
        assert refused.status == 3
        assert "cannot connect to 127.0.0.1:1" in refused.err
    assert users.run("c", "info").out == before


def test_what_is_not_there_is_not_remembered(users: Users) -> None:
    before = users.run("b", "info").out
    refused = users.ask("pull, nothing there", "b", "pull", "--remember", users.url("none"), status=3)
    assert refused == 'brz: ERROR: Not a branch: "URL/none/".\n'
    for command in ("pull", "merge"):
        for url in (users.url("none"), "hpss://127.0.0.1:1/x"):
            assert users.run("b", command, "--remember", url).status == 3
    assert users.run("b", "info").out == before
    users.make("new")
    assert users.run("new", "pull", users.url("none")).status == 3
    assert "parent" not in users.run("new", "info").out
