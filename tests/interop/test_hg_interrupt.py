"""plugins.mercurial.push, plugins.mercurial.remote: ^C at random moments of a push and a pull: hg says so in a line,
nothing is left to recover, and the next command works."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest
from git_sides import Served
from hg_histories import RandomHistory, new_repository, verify
from hg_sides import HgSide, server_heads
from interrupts import SEED, Turn, interruptible, turns, without_theirs
from needs import require

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

CHANGESETS = 400

BEGUN = """
import os

def uisetup(ui):
    os.write(int(os.environ["BEGUN"]), b".")
"""
"""An extension that tells when hg has begun: it does not catch ^C while it is loaded."""


def run(turn: Turn, side: HgSide, *words: str) -> None:
    (side.folder / "begun.py").write_text(BEGUN)

    def start(begun: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["hg", "--config", f"extensions.begun={side.folder / 'begun.py'}", *words],
            cwd=side.folder,
            env=side.environment(PATH=os.environ["PATH"], BEGUN=str(begun)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[begun],
            start_new_session=True,
            preexec_fn=interruptible,
        )

    status, said = turn.interrupt(start)
    turn.is_cut = status != 0
    said = without_theirs(said, r"\*\* ")
    # Python itself ends without a word where the interrupt comes after hg has ended.
    assert not turn.is_cut or said.endswith("interrupted!\n") or (status, said) == (-signal.SIGINT, "")


@pytest.fixture(scope="module")
def side(served: Served, tmp_path_factory: pytest.TempPathFactory) -> HgSide:
    """User a has a history, of which user b has the beginning."""
    made = HgSide(tmp_path_factory.mktemp("hg-interrupt") / "ours", served.url("hg-interrupt"), served)
    RandomHistory(new_repository(made.folder / "a"), SEED, CHANGESETS)
    if made.run("hg -R a verify -q").status:
        require("hg of this environment")  # Another cannot read what that one makes.
    made.prepare('a hg push -q -f --new-branch "$URL"; as b hg clone -q -U -r 0 "$URL" kept')
    return made


def check_nothing_is_left(side: HgSide, name: str) -> None:
    store = side.folder / name / ".hg/store"
    assert not (store / "journal").exists()
    assert not os.path.lexists(store / "lock")
    assert verify(side.folder / name) == (0, "")


def test_push(side: HgSide, served: Served) -> None:
    heads = server_heads(served, "hg-interrupt")
    push = ("-R", "a", "push", "-q", "-f", "--new-branch")
    for number, turn in enumerate(turns("push", lambda turn: run(turn, side, *push, f"{side.url}-measured"))):
        url = f"{side.url}-{number}"
        run(turn, side, *push, url)
        check_nothing_is_left(side, "a")
        assert server_heads(served, f"hg-interrupt-{number}") in ({}, heads)
        side.run(f'a hg push -q -f --new-branch "{url}"')
        assert server_heads(served, f"hg-interrupt-{number}") == heads
        assert PackRepository(LocalTransport(served.root), f"hg-interrupt-{number}").verify().problems == ()


def test_pull(side: HgSide) -> None:
    kept = side.folder / "kept"
    shutil.copytree(kept, side.folder / "b", symlinks=True)
    pull = ("-R", "b", "pull", "-q", side.url)
    for turn in turns("pull", lambda turn: run(turn, side, *pull)):
        shutil.rmtree(side.folder / "b")
        shutil.copytree(kept, side.folder / "b", symlinks=True)
        run(turn, side, *pull)
        check_nothing_is_left(side, "b")
        side.prepare('b hg pull -q "$URL"')
        assert side.has()["b"] == side.has()["a"]
    shutil.rmtree(side.folder / "b")
