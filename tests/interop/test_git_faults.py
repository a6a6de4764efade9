"""An object that would break clones is refused at the push, with a line that says why; lesser faults are accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Served, Side
from test_git_odd_input import COMMIT, check_there_and_back, raw, write

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]

BAD_TIMEZONE = COMMIT.replace(b"+0000\nc", b"+051800\nc")
DOTGIT = (b".git",)
"""The arguments of `odd_commit` for a file that no tree may have: git calls the fault hasDotgit."""


def odd_commit(side: Side, name: bytes = b"f", rest: bytes = COMMIT) -> str:
    """Make branch `odd` of user a, with a commit of one file."""
    blob = bytes.fromhex(side.git("a", "rev-parse", "main:one"))
    tree = write(side, b"tree", b"100644 %s\0%s" % (name, blob))
    commit = write(side, b"commit", b"tree %s\n" % tree + rest + b"\nodd")
    raw(side, b"update-ref", b"refs/heads/odd", commit)
    return commit.decode()


def test_a_tree_that_harms_is_refused_and_the_rest_can_be_cloned(ours: Begin) -> None:
    side = ours("shared")
    commit = odd_commit(side, *DOTGIT)
    done = side.run('a git push "$URL" odd')
    assert done.status not in (0, None), done.said
    (line,) = [each for each in done.err.splitlines() if not each.startswith("error: failed to push")]
    assert f"revision {commit}: hasDotgit: " in line
    side.prepare('as c git clone -q --mirror "$URL" c')
    assert "odd" not in side.git("c", "for-each-ref")


def test_a_fault_of_an_old_history_is_taken_with_a_warning(ours: Begin) -> None:
    side = ours("history")
    odd_commit(side, rest=BAD_TIMEZONE)
    done = side.prepare('a git push "$URL" odd main')
    (line,) = [each for each in done.err.splitlines() if each.startswith("hpss: ")]
    assert line.startswith("hpss: URL: taken with faults that git fsck finds: badTimezone in "), line
    check_there_and_back(side)


@pytest.mark.parametrize(
    ("options", "odd", "why"),
    [
        (("strict",), (b"f", BAD_TIMEZONE), "badTimezone: its author is"),
        (("strict", "--fsck-ignore", "badTimezone"), (b"f", BAD_TIMEZONE), ""),
        (("off",), DOTGIT, ""),
    ],
)
def test_what_is_refused_is_the_choice_of_the_server(
    tmp_path: Path, ours: Begin, options: tuple[str, ...], odd: tuple[bytes, ...], why: str
) -> None:
    """Without checks the server accepts harmful objects silently, as `git -c receive.fsckObjects=false` does."""
    side = ours("history")
    commit = odd_commit(side, *odd)
    served = Served(tmp_path, "--anonymous", "write", "--fsck", *options)
    try:
        done = side.run(f'a git push "{served.url("x")}" odd')
        listed = side.run(f'a git ls-remote "{served.url("x")}"').out
    finally:
        served.close()
    assert ((done.status == 0), commit in listed) == (not why, not why), done.said
    assert why in done.err
    assert "taken with faults" not in done.err


def test_an_id_that_is_no_fault(ours: Begin) -> None:
    side = ours("nothing")
    done = side.run("as a smartserver serve . --fsck-ignore hasDotGit")
    assert done.status not in (0, None)
    assert "--fsck-ignore 'hasDotGit': no such fault; there are badDate, " in done.err
    assert len(done.err.splitlines()) == 1
