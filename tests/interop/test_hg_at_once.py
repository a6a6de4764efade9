"""vcs.hg.repository: two pulls at once into one repository: the second waits for the lock, and what the first one has
added is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from git_sides import TIMEOUT, Served
from hg_histories import verify
from hg_sides import HgSide

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

START = """
hg init a; a commit one; a commit two; a hg bookmark mark; a hg push -q -B mark "$URL"
hg init b; mkfifo held gate
"""


def start(side: HgSide, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["hg", "-R", "b", *words],
        cwd=side.folder,
        env=side.environment(),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("words", [[], ["-B", "mark"]], ids=lambda words: " ".join(words) or "all")
def test_two_pulls(served: Served, tmp_path: Path, words: list[str]) -> None:
    side = HgSide(tmp_path / "ours", served.url(f"hg-{tmp_path.name}"), served)
    side.prepare(START)
    held, gate = side.folder / "held", side.folder / "gate"
    first = start(side, "--config", f"hooks.prechangegroup=echo x >{held}; cat {gate}", "pull", side.url)
    held.read_text()
    second = start(side, "--config", "ui.timeout.warn=0", "pull", *words, side.url)
    assert second.stderr is not None
    assert second.stderr.readline().startswith("waiting for lock on ")
    gate.write_text("")
    for process in (first, second):
        out, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, out + err
    assert "no changes found\n" in out
    assert side.has()["b"] == side.has()["a"]
    assert verify(side.folder / "b") == (0, "")
