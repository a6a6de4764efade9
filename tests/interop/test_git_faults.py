"""An object that would break clones is refused at the push, with a line that says why; lesser faults are accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Served, Side
from test_git_odd_input import COMMIT, check_there_and_back, raw, write

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]

HARMFUL = {
    "hasDotgit": b"100644 .git\0%(blob)s",
    "hasDotdot": b"40000 ..\0%(tree)s",
    "gitmodulesUrl": b"100644 .gitmodules\0%(modules)s",
}


def odd_commit(side: Side, tree: bytes, rest: bytes = COMMIT) -> str:
    """Make branch `odd` of user a, with a commit of this tree."""
    modules = write(side, b"blob", b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=sh\n')
    ids = {
        b"blob": side.git("a", "rev-parse", "main:one").encode(),
        b"tree": side.git("a", "rev-parse", "main^{tree}").encode(),
        b"modules": modules,
    }
    for name, key in ids.items():
        tree = tree.replace(b"%%(%s)s" % name, bytes.fromhex(key.decode()))
    made = write(side, b"tree", tree)
    commit = write(side, b"commit", b"tree %s\n" % made + rest + b"\nodd")
    raw(side, b"update-ref", b"refs/heads/odd", commit)
    return commit.decode()


@pytest.mark.parametrize(("fault", "tree"), HARMFUL.items(), ids=HARMFUL)
def test_a_tree_that_harms_is_refused_and_the_rest_can_be_cloned(ours: Begin, fault: str, tree: bytes) -> None:
    side = ours("shared")
    commit = odd_commit(side, tree)
    done = side.run('a git push "$URL" odd')
    assert done.status not in (0, None), done.said
    (line,) = [each for each in done.err.splitlines() if not each.startswith("error: failed to push")]
    assert f"revision {commit}: {fault}: " in line
    side.prepare('as c git clone -q "$URL" c')
    side.prepare('as c git clone -q --mirror "$URL" d')
    assert "odd" not in side.git("d", "for-each-ref")


TOLERATED = {
    "zeroPaddedFilemode": (b"0100644 f\0%(blob)s", COMMIT),
    "badTimezone": (b"100644 f\0%(blob)s", COMMIT.replace(b"+0000\nc", b"+051800\nc")),
}


@pytest.mark.parametrize(("fault", "parts"), TOLERATED.items(), ids=TOLERATED)
def test_a_fault_of_an_old_history_is_taken_with_a_warning(ours: Begin, fault: str, parts: tuple[bytes, bytes]) -> None:
    side = ours("history")
    odd_commit(side, *parts)
    done = side.run('a git push "$URL" odd main')
    assert done.status == 0, done.said
    (line,) = [each for each in done.err.splitlines() if each.startswith("hpss: ")]
    assert line.startswith(f"hpss: URL: taken with faults that git fsck finds: {fault} in "), line
    check_there_and_back(side)


@pytest.mark.parametrize(
    ("options", "odd", "why"),
    [
        (("strict",), TOLERATED["badTimezone"], "badTimezone: its author is"),
        (("strict", "--fsck-ignore", "badTimezone"), TOLERATED["badTimezone"], ""),
        (("safe",), (HARMFUL["hasDotgit"],), "hasDotgit: "),
        (("off",), (HARMFUL["hasDotgit"],), ""),
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
