"""plugins.breezy.server, plugins.breezy.remote, plugins.breezy.remotes: the plugin takes a command's options from
Breezy's parser. A program that uses Breezy as a library, or runs several commands, gets the current state each time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import of_its_own
from brz_sides import SHIM, Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

BEGIN = """
import subprocess, sys
import breezy, breezy.bzr
from breezy import commands
from breezy.branch import Branch
from breezy.plugin import load_plugins

breezy.initialize().__enter__()
load_plugins()
commands._register_builtin_commands()
commands.install_bzr_command_hooks()

from smartserver.plugins import breezy_shim as hpss
from breezy.workingtree import WorkingTree

def brz(*words):
    assert commands.run_bzr(list(words)) == 0

def push(here, there):
    subprocess.check_call([sys.executable, "-m", "breezy", "push", "-q", "-d", here, there])

"""


def program(users: Users, where: str, source: str, **named: str) -> list[str]:
    """Run a program that uses Breezy in one process, and return the last words that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + "".join(f"{name} = {value!r}\n" for name, value in named.items()) + source],
        cwd=users.folder / where,
        env=users._environment(where, f"hpss@{SHIM}", {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1].split()


def alias(users: Users, words: str) -> None:
    folder = users.folder / ".home" / ".config" / "breezy"
    folder.mkdir(parents=True)
    (folder / "breezy.conf").write_text(f"[ALIASES]\nshort = {words}\n")


# -- what a command was given


@pytest.mark.parametrize("way", ["abbreviated", "alias"])
def test_tags_that_are_to_be_kept_are_kept(users: Users, way: str) -> None:
    users.tag("a", "v3")
    assert users.run("a", "push").status == 0
    alias(users, "uncommit --force --keep-tags")
    words = ["short"] if way == "alias" else ["uncommit", "--force", "--keep-t"]
    assert users.run("a", *words, users.url()).status == 0
    assert users.served_entries("tags").keys() == {"v1", "v3"}
    tip = users.served_tip()
    assert tip is not None
    assert tip[0] == 2


# -- several commands, or none


def test_the_next_command_asks_anew(users: Users) -> None:
    assert users.run("", "checkout", "--lightweight", "-q", users.url(), "light").status == 0
    assert users.run("a", "push", users.url("topic")).status == 0
    users.commit("a", "four")
    said = program(
        users,
        "light",
        """
brz("switch", topic)
push(here, topic)
brz("revno", topic)
brz("switch", trunk)
brz("switch", topic)
tree = WorkingTree.open(".")
print(tree.branch.revno(), tree.branch.revision_id_to_revno(tree.last_revision()), len(hpss.running))
""",
        here=str(users.path("a")),
        topic=users.url("topic"),
        trunk=users.url(),
    )
    assert said == ["4", "4", "0"]


def test_a_command_that_a_program_runs_by_itself(users: Users) -> None:
    source = (
        'from breezy.builtins import cmd_cat\ncmd = cmd_cat()\ncmd.outf = sys.stdout.buffer\ncmd.run(url + "/two")\n'
    )
    assert program(users, "b", source, url=users.url()) == ["two"]


def test_branches_that_were_dropped_are_forgotten(users: Users) -> None:
    source = """
import gc
for _ in range(9):
    Branch.open(".")
gc.collect()
kept = Branch.open(".")
print(len(hpss.opened), hpss.opened[0]() is kept)
"""
    assert program(users, "b", source) == ["1", "True"]


def test_a_pull_into_another_repository_than_was_thought(users: Users) -> None:
    """The tip of the branch is asked before it is known to which repository its history will go."""
    users.make("c")
    users.commit("a", "four")
    assert users.run("a", "push").status == 0
    source = """
there = Branch.open(url)
assert there.revno() == 4
mine = Branch.open(path)
mine.pull(there)
print(mine.revno(), len(mine.repository.all_revision_ids()))
"""
    assert program(users, "b", source, url=users.url(), path=str(users.path("c"))) == ["4", "4"]
    users.check("c")


def test_a_commit_in_a_bound_branch_is_no_push(users: Users) -> None:
    assert users.run("", "checkout", "-q", users.url(), "c").status == 0
    users.add("c", "new")
    source = """
told = []
for name in ("post_push", "post_commit"):
    Branch.hooks.install_named_hook(name, lambda *given, name=name: told.append(name), None)
WorkingTree.open(".").commit("bound")
print(*told)
"""
    assert program(users, "c", source) == ["post_commit"]
    assert users.served_tip() == users.tip("c")


def test_a_branch_is_unlocked_where_its_options_could_not_be_written(users: Users) -> None:
    source = """
import shutil
branch = Branch.open(url)
branch.lock_write()
branch.get_config_stack().set("answer", "42")
shutil.rmtree(served)
try:
    branch.unlock()
except breezy.errors.NotBranchError:
    print(branch.is_locked(), branch.repository.is_locked(), branch.peek_lock_mode())
"""
    served = Path(users.served.root) / users.place
    assert program(users, "b", source, url=users.url(), served=str(served)) == ["False", "False", "None"]


# -- with an agent that outlives its commands


@pytest.fixture
def agent() -> Iterator[dict[str, str]]:
    with of_its_own() as its:
        yield its


def connections(users: Users, *words: str, **variables: str) -> int:
    """Return the number of connections that a command of user b makes."""
    return users.fine("b", *words, **variables).counts.connections


def test_the_next_command_has_the_connection_of_the_last(users: Users, agent: dict[str, str]) -> None:
    assert connections(users, "pull", **agent) == 1
    for words in (["pull"], ["missing"], ["tags", "-d", users.url()], ["push", users.url("another")]):
        assert connections(users, *words, **agent) == 0
    assert connections(users, "pull", **{**agent, "SMARTSERVER_AGENT": "0"}) == 1
