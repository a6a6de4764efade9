"""plugins.breezy.upkeep, plugins.breezy.copy, plugins.breezy.remote,
plugins.breezy.repository: commands of brz that keep a repository on a server in order or change a branch there, in the
round trips of `budgets.toml` and without a VFS call."""

from __future__ import annotations

from pathlib import Path

import pytest
from breezy.workingtree import WorkingTree
from brz_sides import LOOPBACK, SHIM, Users, in_process

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


def test_a_check_tells_of_ghosts(users: Users) -> None:
    assert "ghost" not in users.ask("check", "", "check", users.url())
    with in_process():
        tree = WorkingTree.open(str(users.path("a")))
        tree.set_parent_ids([tree.last_revision(), b"ghost"])
        tree.commit("a ghost", committer="a <a@example.org>")
    assert users.run("a", "push").status == 0
    assert "     1 ghost revisions\n" in users.ask("check", "", "check", users.url())


def test_there_is_nothing_to_upgrade(users: Users) -> None:
    """And what there is, is looked at once."""
    said = users.run("", "upgrade", users.url()).said
    assert said.count("is already at the most recent format") == 1, said
    assert "dependent" not in said


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


# -- what is changed in a branch that is remembered


def test_a_tag(users: Users) -> None:
    assert users.ask("tag, not remembered", "", "tag", "-d", users.url(), "v0") == "Created tag v0.\n"
    assert users.ask("tag", "a", "tag", "-d", users.url(), "v3") == "Created tag v3.\n"
    assert users.served_entries("tags")["v3"] == users.tip("a")[1]
    said = users.ask("tag, which exists", "a", "tag", "-d", users.url(), "v1", status=3)
    assert said == "brz: ERROR: Tag v1 already exists.\n"
    assert "Updated tag v1" in users.ask("tag --force", "a", "tag", "--force", "-d", users.url(), "v1")
    assert users.served_entries("tags")["v1"] == users.tip("a")[1]
    assert "Deleted" in users.ask("tag --delete", "a", "tag", "--delete", "-d", users.url(), "v1")
    assert users.served_entries("tags").keys() == {"v0", "v3"}
    assert "No such tag: v1" in users.run("a", "tag", "--delete", "-d", users.url(), "v1").err


def test_a_tag_where_what_is_remembered_is_old(users: Users) -> None:
    """User b knows the branch as it was."""
    assert users.run("b", "pull").status == 0
    (file,) = users.knowledge_files("b")
    old = file.read_bytes()
    users.commit("a", "four")
    users.tag("a", "v4", 3)
    assert users.run("a", "push").status == 0
    assert users.run("", "tag", "--delete", "-d", users.url(), "v1").status == 0
    for name in ("v5", "v1"):
        file.write_bytes(old)
        users.ask("tag, not as remembered", "b", "tag", "-d", users.url(), name)
    file.write_bytes(old)
    assert "v4 already exists" in users.ask("tag, which exists", "b", "tag", "-d", users.url(), "v4", status=3)
    entries = users.served_entries("tags")
    assert entries["v5"] == entries["v1"] == users.tip("a")[1]
    assert entries["v4"] != entries["v5"]
    file.write_bytes(old)
    said = users.ask("tag --delete, not as remembered", "b", "tag", "--delete", "-d", users.url(), "v5")
    assert said == "Deleted tag v5.\n"


def test_an_option(users: Users) -> None:
    users.ask("config, an option set, not remembered", "", "config", "-d", users.url(), "answer=41")
    assert users.run("a", "pull", users.url()).status == 0
    (file,) = users.knowledge_files("a")
    old = file.read_bytes()
    users.ask("config, an option set", "a", "config", "-d", users.url(), "question=6x7")
    file.write_bytes(old)
    users.ask("config, an option set, not as remembered", "a", "config", "-d", users.url(), "answer=42")
    assert users.served_entries("config") == {"": b"answer = 41\nquestion = 6x7\n".replace(b"41", b"42")}
    file.write_bytes(old)
    words = ("config", "-d", users.url(), "question=7x6")
    assert users.ask("config, an option set, not as remembered", "a", *words) == "", "Breezy warns of a change"
    assert users.served_entries("config") == {"": b"answer = 42\nquestion = 7x6\n"}


def test_options_of_a_server_run_no_program_at_a_client(users: Users) -> None:
    """Nor code: `post_commit_mailer` runs at a commit in a bound checkout, `post_commit` in a lightweight one."""
    ran = users.path("ran")
    mailer = users.path("mailer")
    mailer.write_text(f"#!/bin/sh\necho $0 >>{ran}\n")
    mailer.chmod(0o755)
    options = {
        "post_commit_to": "everybody@example.org",
        "post_commit_mailer": str(mailer),
        "post_commit": f"open({str(ran)!r},'a').write",
    }
    url = users.url()
    for name, value in options.items():
        assert users.run("", "config", "-d", url, f"{name}={value}").status == 0
        assert value.replace(str(users.folder), "HERE") in users.run("", "config", "-d", url, name).out
    assert all(f"  {name} = " in users.run("", "config", "-d", url).out for name in options)
    for kind in ("light", "bound"):
        assert users.run("", "checkout", *(["--lightweight"] if kind == "light" else []), url, kind).status == 0
        users.add(kind, f"of_{kind}")
        users.fine(kind, "commit", "-m", kind)
        assert users.run("", "log", "-r-1", "--line", url).out.split(": ", 1)[1].startswith(kind)
    assert not ran.exists()
    # The user's own options are obeyed as ever.
    done = users.run(
        "bound", "commit", "--unchanged", "-m", "own", *(f"-O{name}={options[name]}" for name in list(options)[:2])
    )
    assert done.status == 0, done.said
    assert ran.exists()


def test_uncommit(users: Users) -> None:
    users.tag("a", "v3")
    assert users.run("a", "push").status == 0
    assert users.run("b", "pull").status == 0
    said = users.ask("uncommit", "b", "uncommit", "--force", users.url())
    assert users.served_entries("tags").keys() == {"v1"}
    assert "commit three" in said
    with users.branch("a") as branch:
        assert users.served_tip() == (2, branch.get_rev_id(2))
    # What is remembered is old: it is shown again what is there, and that is removed.
    users.commit("a", "four")
    assert users.run("a", "push", users.url()).status == 0
    said = users.ask("uncommit, not as remembered", "b", "uncommit", "--force", users.url())
    assert said.index("commit two") < said.index("commit four")
    with users.branch("a") as branch:
        assert users.served_tip() == (3, branch.get_rev_id(3))
    users.path("c").mkdir()
    assert users.ask("uncommit, not remembered", "c", "uncommit", "--force", users.url())


# -- from one branch on the server to another


def test_a_branch_beside_another(users: Users) -> None:
    users.ask("branch, beside, not remembered", "", "branch", users.url(), users.url("one"))
    said = users.ask("branch, beside", "a", "branch", users.url(), users.url("two"))
    assert said == "Branched 3 revisions.\n"
    assert "Already a branch" in users.run("a", "branch", users.url(), users.url("two")).err, "one that is the same"
    for name in ("one", "two"):
        assert users.served_tip(name) == users.served_tip()
        assert users.served_entries("tags", name) == users.served_entries("tags")
    assert users.run("b", "pull").status == 0
    users.commit("a", "four")
    users.tag("a", "v4")
    assert users.run("a", "push").status == 0
    said = users.ask("branch, beside, which exists", "a", "branch", users.url(), users.url("two"), status=3)
    assert said == 'brz: ERROR: Already a branch: "URL/two/".\n'
    assert users.served_entries("tags", "two").keys() == {"v1"}
    # User b knows the branch as it was.
    users.ask("branch, beside, not as remembered", "b", "branch", users.url(), users.url("three"))
    assert users.served_tip("three") == users.served_tip() == users.tip("a")
    assert users.served_entries("tags", "three").keys() == {"v1", "v4"}


def test_a_branch_beside_another_gets_the_tags_that_are_there(users: Users) -> None:
    """The tip is as remembered, the tags are not."""
    users.tag("a", "old", 2)
    users.tag("a", "moved", 2)
    assert users.run("a", "push").status == 0
    assert users.run("b", "revno", users.url()).status == 0
    assert users.run("a", "tag", "-d", users.url(), "-r", "2", "new").status == 0
    assert users.run("a", "tag", "-d", users.url(), "--delete", "old").status == 0
    assert users.run("a", "tag", "-d", users.url(), "--force", "-r", "1", "moved").status == 0
    users.ask("branch, beside, not as remembered", "b", "branch", users.url(), users.url("two"))
    assert users.served_entries("tags", "two") == users.served_entries("tags")


@pytest.mark.unbanned("doc/howto/use_breezy.md: such a pull asks what the branch is as often as Breezy opens it")
def test_a_branch_is_pulled_into_one_on_the_server(users: Users) -> None:
    users.commit("b", "four")
    assert users.run("b", "push", users.url("other")).status == 0
    pulled = users.run("", "pull", "-d", users.url(), users.url("other"))
    assert (pulled.status, pulled.said) == (0, "Now on revision 4.\n")
    assert users.served_tip() == users.served_tip("other") == users.tip("b")
    users.commit("a", "else")
    assert "These branches have diverged." in users.refused("", "pull", "-d", users.url(), str(users.path("a")))
    assert users.served_tip() == users.tip("b")


# -- signatures


def test_signatures(users: Users, tmp_path: Path) -> None:
    (tmp_path / "loopback.py").write_text(LOOPBACK)
    plugin = f"hpss@{SHIM}:loopback@{tmp_path / 'loopback.py'}"
    said = users.ask("verify-signatures", "a", "verify-signatures", users.url(), status=1, plugin=plugin)
    assert "3 commits not signed" in said
    users.commit("b", "other")
    assert users.run("b", "push", users.url()).status == 0
    said = users.ask("sign-my-commits", "a", "sign-my-commits", users.url(), plugin=plugin)
    assert said.endswith("Signed 3 revisions.\n")
    said = users.ask("sign-my-commits, nothing to sign", "a", "sign-my-commits", users.url(), plugin=plugin)
    assert said == "Signed 0 revisions.\n"
    said = users.ask("verify-signatures", "", "verify-signatures", users.url(), status=1, plugin=plugin)
    assert "3 commits with valid signatures" in said
    assert "1 commit not signed" in said
    # They come with a pull, also one that brings no revision, and with a branch.
    assert users.run("b", "pull", users.url()).status == 0
    assert users.run("", "branch", users.url(), "c").status == 0
    for where in ("b", "c"):
        with users.branch(where) as branch:
            repository = branch.repository
            signed = [each for each in repository.all_revision_ids() if repository.has_signature_for_revision_id(each)]
            assert len(signed) == 3
            assert repository.get_signature_text(signed[0]).startswith(b"-----BEGIN PSEUDO-SIGNED CONTENT-----\n")


# -- what reads one of two branches


def test_send_and_switch(users: Users) -> None:
    users.commit("b", "other")
    users.ask("send", "b", "send", "-o", "../bundle", users.url())
    bundle = users.path("bundle").read_text()
    assert "# Bazaar merge directive format 2" in bundle
    assert "target_branch: hpss://" in bundle
    assert "=== added file 'other'" in bundle
    assert users.run("a", "merge", "../bundle").status == 0
    assert users.run("", "checkout", users.url(), "c").status == 0
    assert users.run("b", "push", users.url("topic")).status == 0
    said = users.ask("switch", "c", "switch", users.url("topic"))
    assert "Switched to branch at URL/topic/" in said
    assert users.tip("c") == users.tip("b")
    # What was committed here alone would be lost.
    users.add("c", "local")
    assert users.run("c", "commit", "--local", "-m", "local").status == 0
    said = users.ask("switch", "c", "switch", users.url(), status=3)
    assert "Cannot switch as local commits found in the checkout." in said


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
