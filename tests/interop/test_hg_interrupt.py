"""plugins.mercurial.push, plugins.mercurial.remote: ^C at random moments of a push and a pull: hg says so in a line,
nothing is left to recover, and the next command works."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from git_sides import TIMEOUT, Served
from hg_histories import RandomHistory, new_repository, verify
from hg_sides import HgSide, server_heads
from interrupts import SEED, interrupted, interruptible, moments, without_theirs
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


@dataclass
class Turn:
    """A command that is interrupted so many seconds after it began."""

    seconds: float
    is_cut: bool = False
    took: float = 0.0

    def run(self, side: HgSide, *words: str) -> None:
        (side.folder / "begun.py").write_text(BEGUN)
        reads, writes = os.pipe()
        with open(reads, "rb", buffering=0) as begun:
            process = subprocess.Popen(
                ["hg", "--config", f"extensions.begun={side.folder / 'begun.py'}", *words],
                cwd=side.folder,
                env=side.environment(PATH=os.environ["PATH"], BEGUN=str(writes)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[writes],
                start_new_session=True,
                preexec_fn=interruptible,
            )
            os.close(writes)
            assert begun.read(1), "it never begins"
        _, said, self.took = interrupted(process, self.seconds)
        self.is_cut = process.returncode != 0
        said = without_theirs(said, r"\*\* ")
        # Python itself ends without a word where the interrupt comes after hg has ended.
        assert not self.is_cut or said.endswith("interrupted!\n") or (process.returncode, said) == (-signal.SIGINT, "")


def turns(side: HgSide, *words: str) -> Iterator[Turn]:
    """Turns of a command, one in each part of the time it takes: it was run once to see how long that is."""
    whole = Turn(TIMEOUT)
    whole.run(side, *words)
    assert not whole.is_cut
    made = [Turn(each) for each in moments(words[0], whole.took)]
    for turn in made:
        try:
            yield turn
        except BaseException as wrong:
            wrong.add_note(f"{words[0]}, interrupted after {turn.seconds} s of {whole.took}")
            raise
    assert any(turn.is_cut for turn in made), "nothing was tried"


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
    for number, turn in enumerate(turns(side, "-R", "a", "push", "-q", "-f", "--new-branch", f"{side.url}-measured")):
        url = f"{side.url}-{number}"
        turn.run(side, "-R", "a", "push", "-q", "-f", "--new-branch", url)
        check_nothing_is_left(side, "a")
        assert server_heads(served, f"hg-interrupt-{number}") in ({}, heads)
        side.run(f'a hg push -q -f --new-branch "{url}"')
        assert server_heads(served, f"hg-interrupt-{number}") == heads
        assert PackRepository(LocalTransport(served.root), f"hg-interrupt-{number}").verify().problems == ()


def test_pull(side: HgSide) -> None:
    kept = side.folder / "kept"
    shutil.copytree(kept, side.folder / "b", symlinks=True)
    for turn in turns(side, "-R", "b", "pull", "-q", side.url):
        shutil.rmtree(side.folder / "b")
        shutil.copytree(kept, side.folder / "b", symlinks=True)
        turn.run(side, "-R", "b", "pull", "-q", side.url)
        check_nothing_is_left(side, "b")
        side.prepare('b hg pull -q "$URL"')
        assert side.has()["b"] == side.has()["a"]
    shutil.rmtree(side.folder / "b")
