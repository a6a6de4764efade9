"""Nothing of a repository is known here: the first command receives the history, and the next ones what is new:
plugins.breezy.remote, plugins.breezy.mirror.

They say what they say of the local branch, in the round trips of `budgets.toml`."""

from __future__ import annotations

import random
import re

import pytest
from brz_sides import SHIM, Users, copy_start

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

LARGE = 400_000
"""Bytes of a file: who reads the whole history has them twice."""

LITTLE = 8000
"""Bytes that say what a branch is, and what a few revisions say."""


@pytest.fixture(scope="module")
def history(brz_start: Users, tmp_path_factory: pytest.TempPathFactory) -> Users:
    """What users begin with, then a large file, and a merge of a side branch; tags on both sides."""

    users = copy_start(brz_start, tmp_path_factory.mktemp("brz-first-contact") / "users", "brz-first-contact")
    for name in ("large", "other"):
        users.commit("a", name, random.Random(name).randbytes(LARGE))
    users.path("empty").mkdir()
    assert users.run("", "branch", "-q", "a", "side").status == 0
    users.commit("side", "beside")
    users.tag("side", "side")
    users.commit("a", "four")
    assert users.run("a", "merge", "-q", "../side").status == 0
    users.commit_merge("a")
    assert users.run("a", "push", "-q", users.url()).status == 0
    assert users.run("side", "push", "-q", users.url("side")).status == 0
    return users


class Both:
    """Asks the same of the branches on the server and of the local ones."""

    def __init__(self, users: Users) -> None:
        self.users = users

    def ask(self, budget: str, command: str, status: int = 0) -> None:
        """What a command says of the ones is what it says of the others; the second time little comes."""
        users = self.users
        users.forget("empty")
        remote = command.replace("URL", users.url()).replace("SIDE", users.url("side"))
        local = command.replace("URL", str(users.path("a"))).replace("SIDE", str(users.path("side")))
        done = users.run_within(budget, "empty", *remote.split(), status=status)
        assert done.out == users.run("empty", *local.split()).out
        again = users.run_within(budget, "empty", *remote.split(), status=status)
        assert again.out == done.out
        assert again.counts.bytes_down < LITTLE


@pytest.fixture
def both(history: Users) -> Both:
    return Both(history)


def test_what_a_revision_is(both: Both) -> None:
    for revision in ("", " 2 1 last:1", " -r tag:v1", " -r 2..-1"):
        both.ask("revision-info", f"revision-info -d URL{revision}")
    both.ask("revno", "revno -r tag:v1 URL")
    both.ask("revno", "revno -r 5 URL")
    both.ask("cat-revision", "cat-revision -d URL -r 2")
    both.ask("testament", "testament URL")
    both.ask("testament", "testament -r 2 URL")


def test_a_revision_that_was_merged_has_a_number_of_the_whole_graph(both: Both) -> None:
    both.ask("revno", "revno -r tag:side URL")
    both.ask("tags", "tags -d URL")
    both.ask("tags", "tags --show-ids -d URL")
    both.ask("tags", "tags -d SIDE")


def test_graphs(both: Both) -> None:
    both.ask("find-merge-base", "find-merge-base URL SIDE")
    both.ask("ancestry", "revision-history URL")


def test_logs(both: Both) -> None:
    for words in ("-r tag:v1", "-n0 -l 2", "--forward -l 2", "--forward -n0 -l 2"):
        both.ask("log", f"log {words} URL")


def test_two_branches_are_compared(both: Both) -> None:
    """Once the mirror has both."""
    users = both.users
    users.forget("empty")
    words = ["diff", "--old", users.url("side"), "--new", users.url()]
    first = users.run_within("diff, two branches", "empty", *words, status=1)
    again = users.run_within("diff, two branches, met", "empty", *words, status=1)
    assert again.out == first.out
    assert "+++ new/four" in first.out
    assert "beside" not in first.out
    assert again.counts.bytes_down < LITTLE


def undated(diff: str) -> str:
    """A diff without the times of its files."""
    return re.sub(r"\d+-\d+-\d+ \d+:\d+:\d+ \+0000", "", diff)


def test_two_branches_of_two_repositories_are_compared(both: Both) -> None:
    users = both.users
    elsewhere = users.served.url("brz-first-contact-2/apart")
    assert users.run("", "branch", "-q", "side", "apart").status == 0
    users.commit("apart", "beside", b"another\n")
    assert users.run("apart", "push", "-q", elsewhere).status == 0
    here = {elsewhere: str(users.path("apart")), users.url(): str(users.path("a"))}
    for old, new in ((elsewhere, users.url()), (users.url(), elsewhere)):
        done = users.run("empty", "diff", "--old", old, "--new", new)
        assert done.status == 1, done.said
        local = users.run("empty", "diff", "--old", here[old], "--new", here[new])
        # Of a branch here it is the time of the files on disk, which may be a second later.
        assert undated(done.out) == undated(local.out)


def test_a_tag_that_is_not_there(both: Both) -> None:
    both.ask("log", "log -r tag:none URL", 3)
    both.ask("revno", "revno -r tag:none URL", 3)


UNKNOWN_COMMAND = """
from breezy.branch import Branch
from breezy.commands import Command, register_command


class cmd_all_trees(Command):
    __doc__ = "Show the files of all revisions."
    takes_args = ["location"]

    def run(self, location):
        branch = Branch.open(location)
        with branch.lock_read():
            for number in range(1, branch.revno() + 1):
                tree = branch.repository.revision_tree(branch.get_rev_id(number))
                with tree.lock_read():
                    names = sorted(path for path, _ in tree.iter_entries_by_dir())
                    self.outf.write(f"{number} {names} {tree.get_file_text('one')!r}\\n")


register_command(cmd_all_trees)
"""


def test_a_command_that_is_unknown_gets_the_whole_history_at_last(history: Users) -> None:
    """What is missing is not asked for one by one."""
    (history.folder / "plugin").mkdir()
    (history.folder / "plugin" / "__init__.py").write_text(UNKNOWN_COMMAND)
    history.forget("empty")
    plugins = f"hpss@{SHIM}:all_trees@{history.folder / 'plugin'}"
    done = history.run("empty", "all-trees", history.url("side"), plugin=plugins)
    assert done.status == 0, done.said
    assert done.out == history.run("empty", "all-trees", str(history.path("side")), plugin=plugins).out
    assert done.out.count("b'one") == 6
    assert done.counts.rounds <= 5 + 1


def test_a_branch_is_made_of_an_older_revision(history: Users) -> None:
    """All of it is there: nothing comes here and goes back."""
    for number, revision in enumerate(("3", "tag:v1", "-2")):
        history.forget("empty")
        made = history.url(f"older-{number}")
        done = history.run_within(
            "branch, beside, not remembered", "empty", "branch", "-r", revision, history.url(), made
        )
        assert done.counts.bytes_up < LITTLE
        local = history.run("a", "revision-info", "-r", revision).out.split()
        assert history.run("empty", "revision-info", "-d", made).out.split() == local
    again = history.run("empty", "branch", "-r", "3", history.url(), made)
    assert (again.status, "Already a branch" in again.err) == (3, True)


def test_who_pushes_back_to_where_his_branch_is_from_asks_what_is_there(history: Users) -> None:
    history.commit("a", "more")
    for branch in ("trunk", "topic"):
        history.forget("a")
        done = history.run_within("push, first contact, large", "a", "push", history.url(branch))
        assert done.counts.bytes_up < LITTLE
        assert history.served_tip(branch) == history.tip("a")
