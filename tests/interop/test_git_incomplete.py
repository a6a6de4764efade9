"""Repositories that lack something: shallow, partial and collected ones never offer what they cannot complete, never
send what they lack, and the server never stores a commit with other parents than it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from git_sides import Side, check_rounds, fine

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]

SHALLOW = """
git init -q --bare local; git -C local config uploadpack.allowFilter true
a git push -q ../local main topic --tags
git clone -q --depth 1 "file://$SIDE/local" c
c git remote set-url origin "$URL"
"""
PARTIAL = "printf changed >a/one; a git commit -q -a -m changed\n" + SHALLOW.replace("--depth 1", "--filter=blob:none")
"""The content of the last commit was fetched to be checked out, that of those before it was not."""

UNPACK = "b sh -c 'mv .git/objects/pack/*.pack p; git unpack-objects -q <p; rm p .git/objects/pack/*'"
"""Make the objects of a clone loose."""


def check_clone(side: Side, *expected: str) -> None:
    """A new clone is whole and has these commits' subjects on main, newest first."""
    side.prepare('as d git clone -q "$URL" d')
    assert side.git("d", "fsck", "--strict", "--no-dangling") == ""
    assert side.git("d", "log", "--format=%s").split() == list(expected)


# -- shallow


def test_a_shallow_repository_cannot_make_a_repository(ours: Begin) -> None:
    side = ours("history")
    side.prepare(SHALLOW)
    for command in ("c git push origin main", "c commit new; c git push origin main"):
        result = side.run(command)
        assert result.status != 0
        (line,) = [each for each in result.err.splitlines() if "the remote lacks history that is cut off here" in each]
        assert (side.folder / "c" / ".git" / "shallow").read_text().strip() in line
        assert "(run `git fetch --unshallow` from where it was cloned)" in result.err
    assert side.refs == {}


def test_a_shallow_repository_is_refused_where_the_server_lacks_its_past(ours: Begin) -> None:
    side = ours("shared")
    side.prepare("a commit four; git init -q --bare local; a git push -q ../local main")
    side.prepare('git clone -q --depth 1 "file://$SIDE/local" c; c git remote set-url origin "$URL"; c commit five')
    before = side.refs
    result = side.run("c git push origin main")
    assert result.status != 0
    assert "cannot push from a shallow repository" in result.err
    assert side.refs == before


def test_history_that_the_server_lacks_stays_cut(ours: Begin) -> None:
    side = ours("shared")
    side.prepare("a commit four; a commit five; git init -q --bare local; a git push -q ../local main")
    side.prepare('git clone -q --depth 1 "file://$SIDE/local" c; c git remote set-url origin "$URL"')
    done = side.prepare("c git fetch --unshallow origin main")
    check_rounds(done.counts, 3)
    assert (side.folder / "c" / ".git" / "shallow").read_text().strip() == side.git("a", "rev-parse", "main")
    assert side.git("c", "log", "--format=%s", "FETCH_HEAD").split() == ["three", "two", "one"]
    assert side.git("c", "fsck", "--strict", "--no-dangling") == ""


# -- partial


def test_a_partial_clone_cannot_push_what_it_did_not_fetch(ours: Begin) -> None:
    side = ours("history")
    side.prepare(PARTIAL)
    result = side.run("c git push origin main")
    assert result.status != 0
    line = result.err.splitlines()[0]
    assert line.startswith("fatal: hpss: cannot push: ")
    assert line.endswith("(a partial clone cannot push what it did not fetch)")
    assert side.refs == {}


def test_a_partial_clone_pushes_a_change_of_a_file_it_did_not_fetch(ours: Begin) -> None:
    side = ours("shared")
    side.prepare(PARTIAL.replace("clone -q", "clone -q --no-checkout") + "a git push -q origin main")
    side.prepare(
        "c git read-tree HEAD; c git update-index --cacheinfo 100644,$(echo new | c git hash-object -w --stdin),one;"
        " c git update-ref HEAD $(c git commit-tree -p HEAD -m new $(c git write-tree --missing-ok))"
    )
    side.prepare("c git push origin main")
    check_clone(side, "new", "changed", "three", "two", "one")


# -- collected


def test_grafts_and_replacements_change_nothing_that_is_sent(ours: Begin) -> None:
    side = ours("history")
    side.prepare(
        "a git replace $(a git rev-parse main~1) $(a git rev-parse topic);"
        " mkdir -p a/.git/info; a git rev-parse main >a/.git/info/grafts"
    )
    assert side.git("a", "log", "--format=%s", "main").split() == ["three"]
    side.prepare("a git push -q origin main 2>/dev/null")
    check_clone(side, "three", "two", "one")


@pytest.mark.parametrize("limit", [100, 1])
def test_a_refetch_brings_everything_again(ours: Begin, limit: int) -> None:
    """A pull with haves would not bring the lost objects: their commit is here."""
    side = ours("shared")
    side.prepare(f"{UNPACK}; b git config fetch.unpackLimit {limit}")
    for name in ("HEAD~1:one", "HEAD~1^{tree}"):
        key = side.git("b", "rev-parse", name)
        (side.folder / "b" / ".git" / "objects" / key[:2] / key[2:]).unlink()
    fine(side.run("b git fetch"))
    assert side.run("b git fsck --connectivity-only").status != 0
    done = fine(side.run("b git fetch --refetch"))
    assert done.said == ""
    assert side.git("b", "fsck", "--strict", "--no-dangling") == ""
