"""Every command of a git user over hpss, beside the same command over file://: what it says, what it does, and its
round trips."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from git_rows import ROWS, Row
from git_shallow_rows import SHALLOW_ROWS
from git_sides import Done, Pair, Served, Side, check_rounds, missing_objects, peer_refs, server_head, server_refs
from git_two_users import run
from scripts import script

from netem.counter import Counts

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

BUDGETS: dict[str, int] = tomllib.loads((Path(__file__).parents[1] / "budgets.toml").read_text(encoding="utf-8"))["git"]
"""The most round trips of each command of shallow and partial clones."""

BLIND = """\
from smartserver.cli import git_remote, git_remote_run
from smartserver.plugins.git.hint import Hint

git_remote_run.read = lambda *_: Hint()
git_remote.main()
"""
"""The helper where no command line can be read."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_command_does_what_git_does(row: Row, pair: Callable[[str], Pair]) -> None:
    counts = compared(row, pair(row.start))
    check_rounds(counts, row.rounds)
    assert counts.bytes_down <= row.most_down


@pytest.mark.parametrize("row", SHALLOW_ROWS, ids=lambda row: row.name)
def test_a_command_of_a_part_does_what_git_does(row: Row, pair: Callable[[str], Pair]) -> None:
    counts = compared(row, pair(row.start))
    assert counts.rounds - counts.connections == BUDGETS[f"git {row.name}"], counts


def test_every_budget_is_used() -> None:
    assert BUDGETS.keys() == {f"git {row.name}" for row in SHALLOW_ROWS}


def compared(row: Row, both: Pair) -> Counts:
    """Run a row on both sides, and check all but the traffic, which is returned."""
    if row.before:
        both.prepare(row.before)
    ours, gits = both.run(row.run)
    check_said(row, ours, gits)
    if row.after:
        after, expected = both.run(row.after)
        assert (after.status, after.said) == (0, expected.said)
    check_left(both)
    return ours.counts


GUESSED = (
    "push --delete of a branch of which others made a tag",
    "push --follow-tags, of one that others pushed",
    "push --mirror deletes what others made, and not what they deleted",
    "push --force-with-lease of one of two",
    "push --dry-run, diverged",
    "push --atomic, one refused, one that is there",
)
"""A row of each kind in which a word of the push makes a difference to the helper or to what git decides itself."""


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in GUESSED], ids=lambda row: row.name)
def test_a_push_does_what_git_does_where_its_command_line_cannot_be_read(
    row: Row, pair: Callable[[str], Pair], tmp_path: Path
) -> None:
    script(tmp_path / "git-remote-hpss", BLIND, sys.executable)
    both = pair(row.start)
    if row.before:
        both.prepare(row.before)
    ours = both.ours.run(row.run, PATH=f"{tmp_path}:{os.environ['PATH']}")
    check_said(row, ours, both.gits.run(row.run))
    assert ours.counts.rounds <= 3, ours.counts
    check_left(both)


def check_said(row: Row, ours: Done, gits: Done) -> None:
    """Both said and answered what the row tells."""
    report = f"--- ours: {ours.status}\n{ours.said}--- git's: {gits.status}\n{gits.said}"
    assert (ours.status, gits.status if not row.differs else row.status) == (row.status, row.status), report
    for words in row.says:
        assert words in ours.said, report
    if not row.differs:
        assert ours.out == gits.out
        assert ours.err == gits.err


def check_left(both: Pair) -> None:
    """Users have what they have with git; the served repository has git's refs and everything they reach."""
    state, expected_state = both.states()
    assert state == expected_state
    ours, gits = both.ours, both.gits
    ours.check_sound()
    assert ours.served is not None
    path = ours.path
    refs = peer_refs(gits)
    assert server_refs(ours.served, path) == refs
    if refs:
        assert server_head(ours.served, path) == "refs/heads/main"
        objects = gits.git("peer", "rev-list", "--objects", "--no-object-names", "--all").split()
        assert missing_objects(ours.served, path, objects) == []


# -- the modules that a whole run of the helper loads: git starts it for every command


HEAVY = {
    "twisted",
    "click",
    "asyncio",
    "importlib.metadata",
    "multiprocessing",
    "zope",
    "paramiko",
    "fastimport",
    "urllib.request",
    "ssl",
}


@pytest.mark.parametrize(
    "command",
    [
        "a commit four; a git push origin main",
        "a git push origin main:new :topic",
        "a git fetch",
        'as c git clone "$URL" c',
        'a git ls-remote "$URL"',
        "SMARTSERVER_DEBUG=hpss; export SMARTSERVER_DEBUG; a git fetch",
    ],
)
def test_a_run_loads_nothing_heavy(ours: Callable[[str], Side], command: str) -> None:
    done = ours("shared").run(f"PYTHONPROFILEIMPORTTIME=1; export PYTHONPROFILEIMPORTTIME; {command}")
    assert done.status == 0, done.said
    # import time: self | cumulative | name
    loaded = {line.rpartition("|")[2].strip() for line in done.err.splitlines() if line.startswith("import time:")}
    assert "smartserver.plugins.git.remote" in loaded
    assert not {name for name in loaded if any(name == heavy or name.startswith(heavy + ".") for heavy in HEAVY)}


def test_the_tracer_tells_a_line_a_call_and_one_of_all(ours: Callable[[str], Side]) -> None:
    side = ours("shared")
    done = side.prepare("a commit four; SMARTSERVER_DEBUG=hpss a git push -q origin main")
    call, summary = done.err.splitlines()
    assert call.startswith("hpss: Repository.insert_pack(")
    assert "Branch.set_last_revision(" in call
    assert summary.startswith("hpss: 1 round trip on a fresh connection, 1 call (0 vfs), ")


def test_two_users(served: Served, tmp_path: Path) -> None:
    """A few of the steps of `git_two_users`, which runs as many as it is asked for."""
    assert run(tmp_path, served, 4, 60) > 0
