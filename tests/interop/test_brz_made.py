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
