"""plugins.breezy_upkeep: commands of brz that keep a repository on a server in order, in the round trips of
`budgets.toml` and without a VFS call."""

from __future__ import annotations

import pytest
from brz_sides import Users

from smartserver.plugins import breezy_upkeep  # noqa: F401  # What the commands run in processes of their own.

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


# -- pack, check, reconcile


def packs(users: Users) -> int:
    return len(list((users.served.root / users.place).glob("**/*.pack")))


def test_pack(users: Users) -> None:
    users.commit("a", "four")
    assert users.run("a", "push").status == 0
    assert users.ask("pack", "", "pack", users.url()) == ""
    said = users.ask("pack", "", "pack", "--clean-obsolete-packs", users.url(""))
    assert said == "The server deletes packs that were joined when a day is over.\n"
    assert "1 pack" in users.run("", "check", "-v", users.url()).err
    assert "Not a branch" in users.run("", "pack", users.served.url("none")).err


def test_check_and_reconcile(users: Users) -> None:
    said = users.ask("check", "", "check", users.url())
    assert "Checking branch at 'URL/trunk/'.\n" in said
    assert "checked repository URL/ format" in said
    assert "     3 revisions\n" in said
    assert "checked repository" not in users.ask("check --branch", "", "check", "--branch", users.url())
    said = users.ask("reconcile", "", "reconcile", users.url())
    assert "Reconciling branch URL/trunk/\n" in said
    assert "there is nothing to reconcile.\nReconciliation complete.\n" in said


def test_what_is_damaged_is_listed(users: Users) -> None:
    (file,) = (users.served.root / users.place).glob("**/*.pack")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.chmod(0o644)
    file.write_bytes(content)
    for command in ("check", "reconcile"):
        done = users.run("", command, users.url())
        assert done.status == 3
        assert done.counts.rounds == 2
        assert file.stem in done.err
        assert "brz: ERROR: the repository on the server is damaged: " in done.err
