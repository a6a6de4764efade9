"""^C at random moments of a push and of a pull, which uses a mirror: one line is printed, nothing that blocks is left,
and the next command works: plugins.breezy.push, plugins.breezy.inter, plugins.breezy.mirror."""

from __future__ import annotations

import random
import re
import shutil
from typing import Final

import pytest
from brz_sides import SHIM, Users
from git_sides import Served
from interrupts import SEED, Turn, interruptible, turns, without_theirs

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

REVISIONS = 60


@pytest.fixture(scope="module")
def users(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Users:
    """The users: a has pushed a longer history, of which b has branched the beginning."""
    users = Users(tmp_path_factory.mktemp("brz-interrupt") / "users", served, "brz-interrupt")
    content = random.Random(SEED)
    assert users.run("", "init-shared-repository", users.url("")).status == 0
    users.make("a")
    users.commit("a", "first")
    assert users.run("a", "push", users.url()).status == 0
    assert users.run("", "branch", users.url(), "b").status == 0
    for number in range(REVISIONS):
        users.commit("a", f"file{number}", content.randbytes(20_000))
    assert users.run("a", "push").status == 0
    users.as_whom = interruptible
    return users


BEGUN = """
import os
import sys


class Begun:
    def find_spec(self, name, path=None, target=None):
        if name == "msgspec":
            sys.meta_path.remove(self)
            os.write(int(os.environ["BEGUN"]), b".")
        return None


sys.meta_path.insert(0, Begun())
"""
"""A plugin that reports when the first module of ours runs. An ^C before that is answered by Python or Breezy."""


_AFTER_ITS_END: Final = re.compile(
    r"Traceback .*\n(?:  File \"(?:<frozen runpy>|.*/breezy/(?:__main__|commands|trace)\.py)\", .*\n(?:    .*\n)*)+"
    r"KeyboardInterrupt\n\Z"
)
"""What an interrupt shows that comes while Breezy's own `main` logs that the command has ended."""


def run(turn: Turn, users: Users, where: str, *words: str) -> None:
    """Run a command, and interrupt it."""
    (users.folder / "begun.py").write_text(BEGUN)
    plugins = f"hpss@{SHIM}:begun@{users.folder / 'begun.py'}"
    status, said = turn.interrupt(
        lambda begun: users.start(where, *words, plugin=plugins, passed=[begun], BEGUN=str(begun))
    )
    turn.is_cut = status == 3
    if _AFTER_ITS_END.search(said):
        return
    without_theirs(said, r"^Python|\.py\b")
    assert said.endswith("brz: interrupted\n") if turn.is_cut else status == 0, (status, said)


def break_lock(users: Users, where: str) -> None:
    """Break a lock as Breezy advises: it leaves one behind if it is interrupted while it takes or releases it."""
    if any((users.path(where) / ".bzr").glob("*/lock/held")):
        assert users.run(where, "break-lock", "--force").status == 0


def check_store(users: Users, place: str) -> None:
    assert PackRepository(LocalTransport(users.served.root), place).verify().problems == ()


def test_first_push(users: Users) -> None:
    """A push that sends the history."""
    tip = users.tip("a")
    place = users.served.url(f"{users.place}-new")
    push = ("a", "push", "--no-remember")
    for number, turn in enumerate(turns("push", lambda turn: run(turn, users, *push, f"{place}-measured"))):
        run(turn, users, *push, f"{place}{number}")
        break_lock(users, "a")
        assert users.served_tip(".", f"{users.place}-new{number}") in (None, tip)
        users.check("a")
        assert users.run(*push, f"{place}{number}").status == 0
        assert users.served_tip(".", f"{users.place}-new{number}") == tip
        check_store(users, f"{users.place}-new{number}")


def test_pull(users: Users) -> None:
    before, tip = users.tip("b"), users.tip("a")
    shutil.copytree(users.path("b"), users.path("kept"), symlinks=True)
    for turn in turns("pull", lambda turn: run(turn, users, "b", "pull")):
        shutil.rmtree(users.path("b"))
        shutil.copytree(users.path("kept"), users.path("b"), symlinks=True)
        run(turn, users, "b", "pull")
        break_lock(users, "b")
        assert users.tip("b") in (before, tip)
        assert users.run("b", "check").status == 0
        users.fine("b", "pull")
        assert users.tip("b") == tip
        users.check("b")


WHILE_A_CLASS_IS_MADE = """
import sys


class Interrupted:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt


class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == "msgspec":
            class Made:
                attribute = Interrupted()


sys.meta_path.insert(0, AtImport())
"""


def test_while_a_class_is_made(users: Users) -> None:
    """Python 3.11 turns an interrupt at that moment into another exception."""
    plugin = users.folder / "at_import.py"
    plugin.write_text(WHILE_A_CLASS_IS_MADE)
    assert users.refused("b", "missing", users.url(), plugin=f"hpss@{SHIM}:at_import@{plugin}") == "brz: interrupted\n"
