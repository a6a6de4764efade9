"""Lightweight checkouts of hpss:// branches with the real brz. A commit takes one request to read and one to send; any
other command takes one request: plugins.breezy.checkouts, plugins.breezy.remote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from breezy.workingtree import WorkingTree
from browse_sides import files_in
from brz_sides import START, Users, copy_start, in_process
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
