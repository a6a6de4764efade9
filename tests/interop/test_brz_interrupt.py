"""^C at random moments of commands that push, fetch or read, also what is kept of a history: a line, nothing left that
is in the way, and the next command works: plugins.breezy_push, plugins.breezy_inter, plugins.breezy_shadow."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from brz_sides import Users
from git_sides import TIMEOUT, Done, Served

from smartserver.plugins import breezy_inter, breezy_push, breezy_shadow  # noqa: F401  # They run in other processes.
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

TURNS = int(os.environ.get("INTERRUPTS", "3"))
"""Interrupts of each command."""

SEED = int(os.environ.get("INTERRUPTS_SEED", "3"))

REVISIONS = 60

NOISE = re.compile(r"Traceback|KeyboardInterrupt|Exception ignored|Fatal Python error|^Python|\.py\b", re.MULTILINE)
"""What a user must never see."""


IMPORTING = re.compile(
    r"Exception ignored in: <function _get_module_lock.*\n"
    r"Traceback .*\n  File \"<frozen importlib.*\nKeyboardInterrupt: \n"
)
"""What Python itself says, and forgets the interrupt, where that comes at one moment of an import."""


@pytest.fixture(scope="module")
def users(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Users:
    """User a has pushed more than a moment's worth of history, of which b has branched the beginning."""
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
    users.as_whom = _interruptible
    return users


def _interruptible() -> None:
    """Whatever started the tests may have had its own children ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def has_begun(process: subprocess.Popen[bytes]) -> bool:
    """Whether it runs what is ours: of ^C before that Python, or Breezy, says what it wants."""
    try:
        return process.poll() is not None or "msgspec" in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return True


def after(users: Users, seconds: float, where: str, *words: str) -> tuple[Done, float]:
    """What a command did that was interrupted some seconds after it began, and for how long it ran."""
    process = users.start(where, *words)
    end = time.monotonic() + TIMEOUT
    while not has_begun(process):
        assert time.monotonic() < end, "it never begins"
        time.sleep(0.005)
    began = time.monotonic()
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    took = time.monotonic() - began
    done = Done(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
    assert not NOISE.search(IMPORTING.sub("", done.err)), done.err
    assert done.status == 0 or (done.status == 3 and done.err.endswith("brz: interrupted\n")), done.err
    return done, took


def moments(users: Users, where: str, *words: str) -> Iterator[float]:
    """Seconds after which a command is interrupted: it was run once to see how long it takes."""
    done, whole = after(users, TIMEOUT, where, *words)
    assert done.status == 0, done
    chance = random.Random(f"{SEED}/{words[0]}")
    for _ in range(TURNS):
        moment = chance.uniform(0, 1.05 * whole)
        try:
            yield moment
        except BaseException as wrong:
            wrong.add_note(f"{words[0]}, interrupted after {moment} s of {whole}")
            raise


def break_lock(users: Users, where: str) -> None:
    """Do what Breezy advises where it leaves a lock behind: it does that when it is just taking or giving back one."""
    if any((users.path(where) / ".bzr").glob("*/lock/held")):
        assert users.run(where, "break-lock", "--force").status == 0


def check_store(users: Users) -> None:
    assert PackRepository(LocalTransport(users.served.root), users.place).verify().problems == ()


def test_push(users: Users) -> None:
    tip = users.tip("a")
    for turn, moment in enumerate(moments(users, "a", "push", "--no-remember", users.url("measured"))):
        name = f"pushed{turn}"
        after(users, moment, "a", "push", "--no-remember", users.url(name))
        break_lock(users, "a")
        assert users.served_tip(name) in (None, tip)
        users.check("a")
        assert users.run("a", "push", "--no-remember", users.url(name)).status == 0
        assert users.served_tip(name) == tip
    check_store(users)


def test_first_push(users: Users) -> None:
    """One that sends the history."""
    tip = users.tip("a")
    place = users.served.url(f"{users.place}-new")
    for turn, moment in enumerate(moments(users, "a", "push", "--no-remember", f"{place}-measured")):
        after(users, moment, "a", "push", "--no-remember", f"{place}{turn}")
        break_lock(users, "a")
        assert users.served_tip(".", f"{users.place}-new{turn}") in (None, tip)
        users.check("a")
        assert users.run("a", "push", "--no-remember", f"{place}{turn}").status == 0
        assert users.served_tip(".", f"{users.place}-new{turn}") == tip


def test_branch(users: Users) -> None:
    tip = users.tip("a")
    for moment in moments(users, "", "branch", users.url(), "measured"):
        after(users, moment, "", "branch", users.url(), "new")
        if (users.path("new") / ".bzr" / "branch" / "last-revision").exists():
            break_lock(users, "new")
            assert users.run("new", "check").status == 0
        shutil.rmtree(users.path("new"), ignore_errors=True)  # As with any branch that Breezy did not finish.
        assert users.run("", "branch", users.url(), "new").status == 0
        assert users.tip("new") == tip
        users.check("new")
        shutil.rmtree(users.path("new"))


def test_pull(users: Users) -> None:
    before, tip = users.tip("b"), users.tip("a")
    shutil.copytree(users.path("b"), users.path("kept"), symlinks=True)
    for moment in moments(users, "b", "pull"):
        shutil.rmtree(users.path("b"))
        shutil.copytree(users.path("kept"), users.path("b"), symlinks=True)
        after(users, moment, "b", "pull")
        break_lock(users, "b")
        assert users.tip("b") in (before, tip)
        assert users.run("b", "check").status == 0
        pulled = users.run("b", "pull")
        assert pulled.status == 0, pulled
        assert users.tip("b") == tip
        users.check("b")


@pytest.mark.parametrize("kept", ["nothing kept", "all kept", "some kept"])
def test_log(users: Users, kept: str) -> None:
    """`log -v` of a file, which keeps the history."""
    users.path("empty").mkdir(exist_ok=True)
    shadows = users.cache("empty") / "smartserver" / "shadows"
    words = ("log", "-v", users.url("trunk/file7"))
    expected = users.run("a", "log", "-v", "file7").out
    assert users.run("empty", *words).out == expected
    for turn, moment in enumerate(moments(users, "empty", *words)):
        if kept == "nothing kept":
            shutil.rmtree(shadows)
        elif kept == "some kept":
            users.commit("a", f"more{turn}", random.Random(turn).randbytes(50_000))
            assert users.run("a", "push", "-q").status == 0
        after(users, moment, "empty", *words)
        done = users.run("empty", *words)
        assert (done.status, done.out, done.err) == (0, expected, "")
