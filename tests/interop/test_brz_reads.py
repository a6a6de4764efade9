"""Commands of brz that read revisions over hpss://. With an empty cache and in the round trips of `budgets.toml` they
print the same as for a local branch, because it is stock Breezy that reads the mirror: plugins.breezy.remote,
plugins.breezy.mirror."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

import pytest
from breezy.workingtree import WorkingTree
from brz_sides import START, Users, in_process
from git_sides import Served

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

PLACE = f"{START}-reads"


def move(users: Users, old: str, new: str) -> None:
    with in_process():
        WorkingTree.open(str(users.path("a"))).rename_one(old, new)


@pytest.fixture(scope="module")
def users(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Users:
    """User a, whose pushed branch has folders, a link, a program, a moved file, a changed file, and a merge."""
    users = Users(tmp_path_factory.mktemp("brz-reads") / "users", served, PLACE)
    assert users.run("", "init-shared-repository", "-q", users.url("")).status == 0
    users.make("a")
    folder = users.path("a")
    (folder / "doc" / "deep").mkdir(parents=True)
    (folder / "doc" / "index.txt").write_text("one\ntwo\nthree\n")
    (folder / "doc" / "deep" / "b.txt").write_text("b\n")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "ü").symlink_to("doc")
    users.commit_all("a", "first")
    (folder / "doc" / "index.txt").write_text("one\n2\nthree\n")
    users.commit_all("a", "second")
    move(users, "run", "doc/walk")
    users.commit_all("a", "moved")
    assert users.run("", "branch", "-q", "a", "side").status == 0
    (users.path("side") / "doc" / "index.txt").write_text("one\n2\nthree\nfour\n")
    users.commit_all("side", "beside")
    users.tag("side", "side")
    (folder / "other").write_text("other\n")
    users.commit_all("a", "other")
    assert users.run("a", "merge", "-q", "../side").status == 0
    users.commit_all("a", "merged")
    (folder / "doc" / "deep" / "b.txt").write_text("b\nbb\n")
    users.commit_all("a", "last")
    users.tag("a", "v1", 2)
    assert users.run("a", "push", "-q", users.url()).status == 0
    assert users.run("side", "push", "-q", users.url("side")).status == 0
    users.path("empty").mkdir()
    return users


class Row(NamedTuple):
    """A command, with URL and SIDE for the two branches, and the name of its budget."""

    budget: str
    words: str
    status: int = 0


ROWS = [
    Row("cat", "cat URL/doc/index.txt"),
    Row("cat", "cat -d URL doc/walk -r -5"),  # It was called `run` then.
    Row("cat", "cat URL/doc/index.txt -r tag:v1"),
    Row("ls", "ls -v -r 2 URL/doc"),
    Row("annotate", "annotate --all URL/doc/index.txt"),
    Row("annotate", "annotate -r 1 -d URL doc/index.txt"),
    Row("log", "log -v URL"),
    Row("log", "log -r -2.. URL"),
    Row("log", "log -n0 --line URL"),
    # Revisions that must be looked for.
    Row("log -r TAG..TAG", "log -n0 -r before:v1 URL"),
    Row("log -r TAG..TAG", "log -n0 -r v1..tag:v1 URL"),
    Row("log, one file", "log --line -n0 URL/doc/index.txt"),
    Row("log, one file", "log --short -r ..4 URL/doc/deep/b.txt"),
    # Breezy looks for a renamed path in the first revision, too, and then for the texts of a file without an id.
    Row("log", "log --line URL/run"),
    Row("log, one file", "log --line -r 1 URL/run"),
    # Breezy compares each tree with the one before, which takes the whole history.
    Row("log", "log --line URL/doc"),
    Row("diff -r", "diff -r 1..-1 URL", 1),
    Row("diff -r", "diff -c 5 URL/doc/index.txt", 1),
    # A merged revision has a number that depends on the whole graph.
    Row("revision-info", "revision-info -d URL 2 1 last:1"),
    Row("revno", "revno -r tag:side URL"),
    Row("revno", "revno -r tag:none URL", 3),
    Row("testament", "testament -r 2 URL"),
    Row("tags", "tags --show-ids -d URL"),
    Row("find-merge-base", "find-merge-base URL SIDE"),
    Row("ancestry", "revision-history URL"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_it_prints_the_same_as_of_a_local_branch(users: Users, row: Row) -> None:
    users.forget("empty")
    words = row.words.split()
    there = [word.replace("URL", users.url()).replace("SIDE", users.url("side")) for word in words]
    here = [word.replace("URL", str(users.path("a"))).replace("SIDE", str(users.path("side"))) for word in words]
    remote = users.ask(row.budget, "empty", *there, status=row.status)
    local = users.run("empty", *here)
    assert local.status == row.status, local.said
    assert remote.replace("URL/trunk", "HERE/a") == local.said
    assert bool(remote) == (row.words != "log --line URL/run")


def test_names_that_a_url_escapes(users: Users) -> None:
    users.make("names")
    users.commit_all("names", "before")
    (users.path("names") / "ünï").mkdir()
    for name in ("ünï/ñ.txt", "100%25.txt", "a b#?,=.txt"):
        (users.path("names") / name).write_text(f"{name}\n")
    users.commit_all("names", "odd names")
    assert users.run("names", "push", "-q", users.url("%C3%B1ames")).status == 0
    there = users.url("%C3%B1ames")
    for escaped, name in (
        ("%C3%BCn%C3%AF/%C3%B1.txt", "ünï/ñ.txt"),
        ("100%2525.txt", "100%25.txt"),
        ("a%20b%23%3F%2C%3D.txt", "a b#?,=.txt"),
    ):
        assert users.ask("cat", "", "cat", f"{there}/{escaped}") == f"{name}\n"
        assert users.ask("log, one file", "", "log", "--line", f"{there}/{escaped}").startswith("2: Joe ")
        assert users.ask("annotate", "", "annotate", f"{there}/{escaped}").endswith(f"| {name}\n")
    assert users.ask("ls", "", "ls", "--kind=file", f"{there}/%C3%BCn%C3%AF").endswith("/ñ.txt\n")
    users.ask("export", "", "export", "exported", f"{there}/%C3%BCn%C3%AF")
    assert os.listdir(users.path("exported")) == ["ñ.txt"]
    assert "+ünï/ñ.txt" in users.ask("diff -r", "", "diff", "-r1..2", f"{there}/%C3%BCn%C3%AF", status=1)
    assert users.ask("log", "", "log", "--line", f"{there}/%C3%BCn%C3%AF").startswith("2: Joe ")


def test_cat_of_what_is_not_there(users: Users) -> None:
    said = users.ask("cat", "empty", "cat", users.url("trunk/doc/none"), status=3)
    assert said.startswith("brz: ERROR: 'URL/trunk/doc/none' is not present in revision")
    done = users.run("empty", "cat", users.url("trunk/doc/index.txt"), "-r", "99")
    assert done.err == "brz: ERROR: Requested revision: '99' does not exist in branch: URL/trunk/\n"
    assert "Not a branch" in users.run("empty", "cat", users.url("none/doc")).err


def test_log_of_a_number_that_is_not_there(users: Users) -> None:
    users.forget("empty")
    users.ask("log -r, not there", "empty", "log", "-r", "9999", users.url(), status=3)


def test_info(users: Users) -> None:
    users.forget("empty")
    said = users.ask("info -v", "empty", "info", "-v", users.url())
    assert " 6 revisions\n" in said
    (count,) = re.findall(r"Repository:\n +(\d+) revisions\n", said)
    assert int(count) > 6, "those of the repository"


def test_what_is_kept_of_a_revision(users: Users) -> None:
    """The stored text of a revision has no newline at its end."""
    users.forget("empty")
    there = users.run_within("cat-revision", "empty", "cat-revision", "-d", users.url(), "-r", "2")
    assert there.out == users.run("empty", "cat-revision", "-d", str(users.path("a")), "-r", "2").out


def test_two_branches_are_compared(users: Users) -> None:
    """The branches are compared in the mirror, once it has both."""
    users.forget("empty")
    words = ["diff", "--old", users.url("side"), "--new", users.url()]
    first = users.run_within("diff, two branches", "empty", *words, status=1)
    again = users.run_within("diff, two branches, met", "empty", *words, status=1)
    assert again.out == first.out
    assert "+++ new/other" in first.out
    assert "four" not in first.out
