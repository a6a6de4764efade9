"""Lightweight checkouts of hpss:// branches with the real brz. A commit takes one request to read and one to send; any
other command takes one request: plugins.breezy.checkouts, plugins.breezy.remote, plugins.breezy.inter."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from breezy.workingtree import WorkingTree
from browse_sides import files_in
from brz_sides import START, Begin, Users, copy_start, in_process
from git_sides import Served

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LIGHT = "light"
MANY = 300
"""Files in the tree; their inventory takes several pages."""


@pytest.fixture(scope="module")
def begun(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Users:
    """A tree of many files with links, programs and folders; `trunk` and an older `old` on the server; a checkout."""
    place = f"{START}-light"
    users = Users(tmp_path_factory.mktemp("brz-light") / "users", served, place)
    assert users.run("", "init-shared-repository", "-q", users.url("")).status == 0
    users.make("a")
    folder = users.path("a")
    for number in range(MANY):
        inside = folder / f"folder{number % 7}" / f"deep{number % 3}"
        inside.mkdir(parents=True, exist_ok=True)
        (inside / f"file{number:03}.txt").write_text(f"{number}\n" * 20)
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "ü").symlink_to("folder1")
    (folder / "empty").mkdir()
    users.commit_all("a", "first")
    assert users.run("a", "push", "-q", users.url("old")).status == 0
    (folder / "run").write_text("#!/bin/sh\nexit\n")
    (folder / "only-in-trunk").write_text("new\n")
    users.commit_all("a", "second")
    users.tag("a", "v1", 1)
    assert users.run("a", "push", "-q", users.url()).status == 0
    users.ask("checkout --lightweight", "", "checkout", "--lightweight", "-q", users.url(), LIGHT)
    return users


@pytest.fixture
def users(begun: Users, tmp_path: Path) -> Users:
    """A copy of `begun`, with a repository of its own."""
    copied = copy_start(begun, tmp_path / "users", f"brz-light-{tmp_path.name}")
    assert copied.run(LIGHT, "status").status == 0  # Its user has met the branch.
    return copied


def changed(folder: Path, users: Users) -> None:
    (folder / "folder1" / "deep1" / "file001.txt").write_text("another\n")


def added(folder: Path, users: Users) -> None:
    (folder / "new").mkdir()
    (folder / "new" / "file").write_text("new\n")
    (folder / "new" / "program").write_text("#!\n")
    (folder / "new" / "program").chmod(0o755)
    (folder / "new" / "link").symlink_to("file")
    assert users.run(LIGHT, "add", "-q").status == 0


def everything(folder: Path, users: Users) -> None:
    """Change, add, remove and move entries, and change the kind of some."""
    changed(folder, users)
    added(folder, users)
    assert users.run(LIGHT, "mv", "-q", "folder4", "elsewhere").status == 0
    assert users.run(LIGHT, "mv", "-q", "run", "elsewhere/walk").status == 0
    (folder / "elsewhere" / "walk").write_text("changed, too\n")
    assert users.run(LIGHT, "remove", "-q", "folder3").status == 0
    (folder / "folder2" / "deep2" / "file002.txt").unlink()
    (folder / "ü").unlink()
    (folder / "ü").symlink_to("folder2")
    (folder / "only-in-trunk").unlink()
    (folder / "only-in-trunk").symlink_to("run")
    (folder / "folder5" / "deep0" / "file012.txt").chmod(0o755)


def large(folder: Path, users: Users) -> None:
    for number in range(500):
        (folder / f"added{number}").write_text(f"{number}\n")
    (folder / "random").write_bytes(os.urandom(300_000))
    assert users.run(LIGHT, "add", "-q").status == 0


Change = Callable[[Path, Users], None]


@pytest.mark.parametrize("change", [everything, large])
def test_commit(users: Users, change: Change) -> None:
    change(users.path(LIGHT), users)
    said = users.ask("commit, lightweight", LIGHT, "commit", "-m", "changed")
    assert said.endswith("Committed revision 3.\n"), said
    assert users.ask("status, lightweight", LIGHT, "status") == ""
    check_committed(users)


def check_committed(users: Users, *merged: bytes) -> None:
    """Check that another user gets what was committed, and that Breezy finds it sound."""
    users.fine("", "branch", "-q", users.url(), "got")
    assert files_in(users.path("got"), b".bzr") == files_in(users.path(LIGHT), b".bzr")
    with users.branch("got") as branch:
        tip = branch.last_revision()
        assert branch.repository.get_parent_map([tip])[tip] == (users.tip("a")[1], *merged)
        found = branch.repository.check()
        assert not any((found.missing_revision_cnt, found.inconsistent_parents, found.unreferenced_versions))


def test_commit_of_nothing(users: Users) -> None:
    said = users.ask("commit, lightweight, nothing", LIGHT, "commit", "-m", "nothing", status=3)
    assert "No changes to commit." in said
    assert users.served_tip() == users.tip("a")
    said = users.ask("commit, lightweight", LIGHT, "commit", "--unchanged", "-m", "nothing")
    assert said.endswith("Committed revision 3.\n")
    check_committed(users)


def test_commit_of_named_files(users: Users) -> None:
    folder = users.path(LIGHT)
    changed(folder, users)
    (folder / "run").write_text("not this\n")
    assert "Committed" in users.ask("commit, lightweight", f"{LIGHT}/folder1", "commit", "-m", "one", ".")
    assert users.ask("status, lightweight", LIGHT, "status") == "modified:\n  run\n"
    assert "Committed revision 4" in users.ask("commit, lightweight", LIGHT, "commit", "-m", "two", "-x", "folder1")


def test_commit_of_what_is_out_of_date(users: Users) -> None:
    users.commit("a", "other")
    assert users.run("a", "push", "-q", users.url()).status == 0
    changed(users.path(LIGHT), users)
    said = users.ask("commit, lightweight, nothing", LIGHT, "commit", "-m", "mine", status=3)
    assert said.endswith("brz: ERROR: Working tree is out of date, please run 'brz update'.\n")
    assert "Updated to revision 3" in users.ask("update, lightweight", LIGHT, "update")
    assert "Committed revision 4." in users.ask("commit, lightweight", LIGHT, "commit", "-m", "mine")
    assert users.ask("status, lightweight", LIGHT, "status") == ""


def test_update_to_a_branch_that_was_overwritten(users: Users) -> None:
    """No branch reaches the checkout's own commit any more, but the repository still has it."""
    for number in (3, 4):
        (users.path(LIGHT) / "new").write_text(f"{number}\n")
        assert users.run(LIGHT, "add", "-q").status == 0
        assert "Committed" in users.ask("commit, lightweight", LIGHT, "commit", "-m", f"number {number}")
    users.commit("a", "other")
    users.commit("a", "another")
    assert users.run("a", "push", "-q", "--overwrite", users.url()).status == 0
    said = users.ask("update, lightweight, overwritten", LIGHT, "update")
    assert "Updated to revision 4" in said
    assert users.run(LIGHT, "status", "--short").out == "+N  new\n"
    assert "Committed revision 5." in users.ask("commit, lightweight", LIGHT, "commit", "-m", "again")
    assert users.run("", "uncommit", "--force", "-r", "2", users.url()).status == 0
    assert "Updated to revision 2" in users.run(LIGHT, "update").said
    assert sorted(users.run(LIGHT, "status", "--short").out.split()[1::2]) == ["another", "new", "other"]


def test_two_commits_at_once(users: Users, tmp_path: Path) -> None:
    """The other commit arrives while this one's message is written, after it has read the tip."""
    users.commit("a", "other")
    other = users.tip("a")
    editor = tmp_path / "editor"
    push = f"{os.sys.executable} -m breezy push -q -d {users.path('a')} {users.url()}"  # type: ignore[attr-defined]
    editor.write_text(f'#!/bin/sh\n{push} && echo mine > "$1"\n')
    editor.chmod(0o755)
    changed(users.path(LIGHT), users)
    done = users.run(LIGHT, "commit", BRZ_EDITOR=str(editor))
    assert done.status == 3, done.said
    assert "brz: ERROR: Working tree is out of date, please run 'brz update'.\n" in done.err
    assert users.served_tip() == other
    assert users.ask("update, lightweight", LIGHT, "update").startswith("+N  other\n")
    assert "M  folder1/deep1/file001.txt" in users.run(LIGHT, "status", "--short").said
    assert "Committed revision 4." in users.ask("commit, lightweight", LIGHT, "commit", "-m", "mine")


def test_switch(users: Users) -> None:
    folder = users.path(LIGHT)
    said = users.ask("switch, lightweight", LIGHT, "switch", "old")
    assert "Updated to revision 1." in said
    assert not (folder / "only-in-trunk").exists()
    assert (folder / "run").read_text() == "#!/bin/sh\n"
    assert users.ask("status, lightweight", LIGHT, "status") == ""
    changed(folder, users)
    (folder / "run").write_text("#!/bin/bash\n")
    done = users.run(LIGHT, "switch", users.url(), "-Dhpss")
    assert "Updated to revision 2." in done.said
    assert (done.counts.rounds_without_handshake, done.status) == (1, 0), done.said
    assert done.counts.bytes_down < 12_000
    assert (folder / "run").read_text() == "<<<<<<< TREE\n#!/bin/bash\n=======\n#!/bin/sh\nexit\n>>>>>>> MERGE-SOURCE\n"
    assert (folder / "only-in-trunk").read_text() == "new\n"
    status = users.run(LIGHT, "status", "--short").said
    assert " M  folder1/deep1/file001.txt\n" in status


def test_diff_and_revert(users: Users) -> None:
    folder = users.path(LIGHT)
    changed(folder, users)
    assert users.run(LIGHT, "remove", "-q", "folder3", "run").status == 0
    said = users.ask("diff, lightweight", LIGHT, "diff", status=1)
    assert "-1\n-1\n" in said
    assert "+another\n" in said
    assert "=== removed file 'run'\n" in said
    assert "+another\n" in users.ask("diff, lightweight", f"{LIGHT}/folder1", "diff", "deep1", status=1)
    users.ask("revert, lightweight", LIGHT, "revert")
    assert users.ask("status, lightweight", LIGHT, "status") == ""
    assert (folder / "folder1" / "deep1" / "file001.txt").read_text() == "1\n" * 20
    assert (folder / "folder3").is_dir()


def test_uncommit(users: Users) -> None:
    changed(users.path(LIGHT), users)
    assert users.run(LIGHT, "commit", "-q", "-m", "mine").status == 0
    users.tag("a", "v9")
    said = users.ask("uncommit, lightweight", LIGHT, "uncommit", "--force")
    assert "mine\n" in said
    assert users.served_tip() == users.tip("a")
    assert users.run(LIGHT, "status", "--short").said == " M  folder1/deep1/file001.txt\n"


@pytest.mark.parametrize("source", ["the server", "here"])
def test_commit_of_a_merge(users: Users, source: str) -> None:
    assert users.run("", "branch", "-q", users.url("old"), "side").status == 0
    (users.path("side") / "run").write_text("#!/bin/sh\n# beside\n")
    (users.path("side") / "beside").write_text("beside\n")
    users.commit_all("side", "beside")
    if source == "the server":
        assert users.run("side", "push", "-q", users.url("side")).status == 0
    # The last one remembers where from.
    users.ask(
        "merge, lightweight", LIGHT, "merge", users.url("side") if source == "the server" else "../side", status=1
    )
    (users.path(LIGHT) / "run").write_text("#!/bin/sh\n# beside\nexit\n")
    assert users.run(LIGHT, "resolve", "-q", "--all").status == 0
    said = users.ask("commit, lightweight", LIGHT, "commit", "-m", "merged")
    assert said.endswith("Committed revision 3.\n"), said
    assert users.ask("status, lightweight", LIGHT, "status") == ""
    check_committed(users, users.tip("side")[1])


def test_merge_of_its_own_branch(users: Users) -> None:
    """The history is sent once, though two branches are opened."""
    said = users.ask("merge of its own branch, lightweight", LIGHT, "merge", "-r", "-1..-2", ".")
    assert "All changes applied successfully.\n" in said


def test_what_only_looks_at_files_asks_nobody(users: Users) -> None:
    added(users.path(LIGHT), users)
    users.ask("add, lightweight", LIGHT, "diff", status=1)
    for words in (["ls"], ["mv", "run", "walk"], ["ignore", "*.o"], ["unknowns"], ["remove", "--keep", "walk"]):
        users.ask("add, lightweight", LIGHT, *words)


def test_commit_where_a_ghost_is_merged(users: Users) -> None:
    with in_process():
        tree = WorkingTree.open(str(users.path("a")))
        tree.set_parent_ids([tree.last_revision(), b"ghost"])
    dirstate = Path(".bzr") / "checkout" / "dirstate"
    shutil.copyfile(users.path("a") / dirstate, users.path(LIGHT) / dirstate)
    changed(users.path(LIGHT), users)
    said = users.ask("commit, lightweight", LIGHT, "commit", "-m", "a ghost")
    assert said.endswith("Committed revision 3.\n")
    check_committed(users, b"ghost")


def test_push_remembers_where_to(users: Users) -> None:
    """The location is kept in the options of the branch of the checkout."""
    assert users.run(LIGHT, "push", "-q", "--no-remember", users.url("new")).status == 0
    assert "No push location known or specified." in users.run(LIGHT, "push").err
    assert users.run(LIGHT, "push", "-q", users.url("new")).status == 0
    assert users.run(LIGHT, "push", "-q", users.url("old")).status == 0
    assert users.run(LIGHT, "push").said.startswith("Using saved push location: URL/new/\n")
    assert users.run(LIGHT, "push", "-q", "--remember", users.url("old")).status == 0
    assert users.run(LIGHT, "push").said.startswith("Using saved push location: URL/old/\n")


def make_light(users: Users) -> None:
    """A lightweight checkout of `trunk`; `new` is two revisions ahead of it, `apart` has one that it has not."""
    shutil.copytree(users.path("a"), users.path("new"))
    users.commit("new", "four")
    users.commit("new", "five")
    users.tag("new", "v5")
    assert users.run("new", "push", users.url("new")).status == 0
    assert users.run("", "branch", "-q", "-r", "2", "a", "apart").status == 0
    users.commit("apart", "other")
    assert users.run("apart", "push", users.url("apart")).status == 0
    assert users.run("", "checkout", "--lightweight", users.url(), "light").status == 0
    assert users.run("light", "status").status == 0  # Its user has met the branch.


@pytest.fixture
def light(changed: Begin) -> Users:
    return changed(make_light)


def test_pull(light: Users) -> None:
    said = light.ask("pull, lightweight", "light", "pull", "--no-remember", light.url("new"))
    assert said == "Now on revision 5.\n1 tag(s) updated.\n+N  five\n+N  four\nAll changes applied successfully.\n"
    assert light.served_tip() == light.served_tip("new") == light.tip("new")
    assert light.served_entries("tags").keys() == {"v1", "v5"}
    assert light.ask("status, lightweight", "light", "status") == ""
    assert (light.path("light") / "five").read_text() == "five\n"
    said = light.ask("pull, lightweight, nothing new", "light", "pull", "--no-remember", light.url("new"))
    assert said == "No revisions or tags to pull.\n"
    assert light.run("", "branch", "-q", light.url(), "got").status == 0
    light.check("got")


def test_pull_of_no_revision(light: Users) -> None:
    assert light.run("", "branch", "-q", "-r", "1", "a", "one").status == 0
    for revision, source in (("4", "../one"), ("5", light.url("one"))):
        assert light.run("new", "push", "-q", "-r", revision, light.url()).status == 0  # The user has not seen it.
        done = light.run("light", "pull", "--no-remember", "-r", "last:2", source)
        assert (done.status, done.said) == (0, "No revisions or tags to pull.\n")
        assert light.run("one", "push", light.url("one")).status == 0
    assert light.served_tip() == light.tip("new")


def test_pull_of_what_has_diverged(light: Users) -> None:
    before = light.served_tip()
    words = ("pull", "--no-remember", light.url("apart"))
    said = light.ask("pull, lightweight, diverged", "light", *words, status=3)
    assert said.startswith("brz: ERROR: These branches have diverged. Use the missing command to see how.\n")
    assert light.served_tip() == before
    (light.path("light") / "one").write_text("mine\n")
    said = light.ask("pull, lightweight", "light", *words, "--overwrite")
    assert said == "Now on revision 3.\n+N  other\n-D  three\nAll changes applied successfully.\n"
    assert light.served_tip() == light.tip("apart")
    assert light.run("light", "status", "--short").out == " M  one\n"
    assert "Committed revision 4." in light.ask("commit, lightweight", "light", "commit", "-m", "on it")


def test_pull_up_to_a_revision_and_of_what_the_branch_remembers(light: Users) -> None:
    done = light.run("light", "pull", "-r", "4", light.url("new"), "-v")
    assert "Now on revision 4." in done.said, done.said
    assert "commit four" in done.said
    assert light.served_tip() == (4, light.revision("new", 4))
    said = light.ask("pull, lightweight", "light", "pull")
    assert said.startswith("Using saved parent location: URL/new/\n")
    assert "Now on revision 5." in said
    assert light.ask("status, lightweight", "light", "status") == ""


def test_pull_of_its_own_branch_that_has_moved_leaves_the_tree(light: Users) -> None:
    """It has nothing to be pulled; the tree is brought there by an update, as over bzr://."""
    light.commit("a", "ahead")
    assert light.run("a", "push", light.url()).status == 0
    said = light.ask("pull, lightweight, of its own branch", "light", "pull", "--no-remember", light.url())
    assert said == "No revisions or tags to pull.\n"
    assert not (light.path("light") / "ahead").exists()
    (light.path("light") / "one").write_text("mine\n")
    assert "Working tree is out of date" in light.refused("light", "commit", "-m", "out of date")
    assert "Updated to revision 4" in light.run("light", "update").said


@pytest.mark.parametrize(
    ("source", "option", "forth"),
    [("URL", "--remember", True), ("URL", "--no-remember", False), ("../new", "--no-remember", True)],
)
def test_pull_into_a_branch_that_has_moved_since(light: Users, source: str, option: str, forth: bool) -> None:
    """The tree is brought from where the branch was, not from where its user last saw it. By now it is at what is
    pulled, or was put back."""
    place = light.url("new") if source == "URL" else source
    if forth:
        assert light.run("new", "push", light.url()).status == 0
        told = "No revisions or tags to pull.\n"
    else:
        assert light.run("light", "pull", "--no-remember", place).status == 0
        assert light.run("new", "push", "--overwrite", "-r", "4", light.url()).status == 0
        told = "Now on revision 5.\nAll changes applied successfully.\n"
    done = light.run("light", "pull", option, place)
    assert (done.status, done.said) == (0, told)
    assert light.served_tip() == light.tip("new")
    assert (light.path("light") / "five").exists() is not forth


def test_pull_into_a_bound_branch_whose_master_was_put_back(light: Users) -> None:
    """Breezy's own pull decides about the master, on its present state: the command runs once and says so once."""
    assert light.run("", "checkout", light.url(), "bound").status == 0
    assert light.run("bound", "pull", "--no-remember", light.url("new")).status == 0
    assert light.run("new", "push", "--overwrite", "-r", "4", light.url()).status == 0
    done = light.run("bound", "pull", "--no-remember", light.url("new"))
    assert (done.status, done.said) == (0, "No revisions or tags to pull.\n")
    assert light.served_tip() == light.tip("new")


@pytest.mark.parametrize("source", ["URL", "../new"])
def test_pull_keeps_a_parent_that_somebody_else_set_since(light: Users, source: str) -> None:
    assert light.run("a", "config", "-d", light.url(), "--scope=branch", "parent_location=../apart").status == 0
    place = light.url("new") if source == "URL" else source
    done = light.run("light", "pull", place)
    assert (done.status, done.err) == (0, "+N  five\n+N  four\nAll changes applied successfully.\n")
    assert light.run("a", "config", "-d", light.url(), "parent_location").out == "../apart\n"


REPORT = "Removed Revisions:\n.*commit three.*Added Revisions:\n.*commit other"


@pytest.mark.parametrize(
    ("before", "words", "said", "tip"),
    [
        ("a push -r 2 URL/old", "URL/old", "^No revisions or tags to pull", "a 3"),
        ("a push -r 2 URL/old", "--overwrite URL/old", "^Now on revision 2", "a 2"),
        ("new push ANOTHER/new", "ANOTHER/new", "^Now on revision 5", "new 5"),
        # The condition that the branch is where it was names a revision that the source has not.
        ("", "../apart", "ERROR: These branches have diverged", "a 3"),
        ("", "--overwrite ../apart", "^Now on revision 3", "apart 3"),
        ("", "--overwrite -v ../apart", REPORT, "apart 3"),
        ("", "--overwrite -v URL/apart", REPORT, "apart 3"),
        # The branch does not reach what the tree rests on.
        ("apart push --overwrite URL/trunk", "--overwrite ../new", "^Now on revision 5", "new 5"),
    ],
)
def test_pull_of_what_lies_elsewhere(light: Users, before: str, words: str, said: str, tip: str) -> None:
    def placed(text: str) -> list[str]:
        return text.replace("ANOTHER", light.served.url(f"{light.place}-another")).replace("URL", light.url("")).split()

    (light.path("light") / "one").write_text("mine\n")
    if before:
        light.fine(*placed(before))
    done = light.run("light", "pull", "--no-remember", *placed(words))
    assert re.search(said, done.said, re.DOTALL), done.said
    branch, revno = tip.split()
    assert light.served_tip() == (int(revno), light.revision(branch, int(revno)))
    assert light.run("light", "status", "--short").out == " M  one\n"


@pytest.mark.parametrize("source", ["here", "beside"])
def test_pull_changes_nothing_where_the_server_has_not_what_the_tree_rests_on(light: Users, source: str) -> None:
    assert light.run("", "branch", "-q", "-r", "2", "a", "more").status == 0
    light.commit("more", "more")
    shutil.rmtree(light.served.root / light.place)
    assert light.run("", "init-shared-repository", "-q", light.url("")).status == 0
    for branch, place in (("apart", light.url()), ("more", light.url("more"))):
        assert light.run(branch, "push", "-q", place).status == 0
    light.forget("light")
    place = "../more" if source == "here" else light.url("more")
    done = light.run("light", "pull", "--no-remember", "--overwrite", place)
    assert (done.status, "is no longer in the repository of" in done.err) == (3, True), done.said
    assert light.served_tip() == light.tip("apart"), done.said
