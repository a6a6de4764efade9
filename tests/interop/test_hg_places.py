"""`smartserver` copies repositories of Mercurial as a whole, counts them, and checks them."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_sides import TIMEOUT, Served, environment, fine
from hg_sides import HgSide, copy_hg_side, server_bookmarks, server_heads, server_markers
from our_forks import FORKS

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

HISTORY = r"""
hg init a
a commit one; a commit two; a hg update -q 0; a commit other; a hg commit -q --close-branch -m closed
a hg update -q 1; a hg branch -q topic; a commit topical; a hg update -q default
a hg bookmark -r topic mark
a hg push -q -f --new-branch "$URL"; a hg push -q -B mark "$URL" || true
"""
"""The script of a branch with two heads, one of them closed, another branch, and a bookmark."""


@pytest.fixture(scope="module")
def start(served: Served, tmp_path_factory: pytest.TempPathFactory) -> HgSide:
    made = HgSide(tmp_path_factory.mktemp("places") / "ours", served.url("places"), served)
    made.prepare(HISTORY)
    return made


@pytest.fixture
def side(start: HgSide, served: Served, tmp_path: Path) -> HgSide:
    """A copy of the start, with a repository of its own on the server."""
    path = f"places-{tmp_path.name}"
    served.copy("places", path)
    return copy_hg_side(start, tmp_path / "ours", served.url(path))


def smartserver(side: HgSide, *words: str) -> str:
    """Return the output of a command that must succeed."""
    words = ("-m", "smartserver.cli.main", *words)
    status, out, err = FORKS.run(*words, timeout=TIMEOUT, environment=environment(side.folder))
    assert status == 0, err.decode()
    return out.decode()


def path_of(place: str) -> str:
    return place.rpartition("/")[2]


def test_a_copy_has_all_heads_and_bookmarks(side: HgSide, served: Served) -> None:
    there = str(served.root / path_of(side.url)) + "-copy"
    assert smartserver(side, "pull", side.url, there).startswith("5 revisions")
    assert server_heads(served, path_of(there)) == server_heads(served, path_of(side.url))
    assert server_bookmarks(served, path_of(there)) == server_bookmarks(served, path_of(side.url)) != {}
    fine(side.run('a hg pull "$URL-copy"'))
    fine(side.run('as c hg clone -q "$URL-copy" c'))
    has = side.has()
    assert [row.replace("'mark'", "") for row in has["c"]] == [row.replace("'mark'", "") for row in has["a"]]
    side.prepare('a hg update -q topic; a commit more; a hg push -q "$URL"')
    smartserver(side, "pull", side.url, there)
    assert server_heads(served, path_of(there)) == server_heads(served, path_of(side.url))


def test_a_copy_has_all_markers(side: HgSide, served: Served) -> None:
    for setting in (("publishing", "no"), ("evolution", "yes")):
        smartserver(side, "config", side.url, *setting)
    with open(side.folder / ".hgrc", "a") as file:
        file.write("[experimental]\nevolution = all\n")
    side.prepare('a commit new; a hg commit --amend -q -m newer; a hg push -q "$URL"')
    there = str(served.root / path_of(side.url)) + "-copy"
    for _ in range(2):
        smartserver(side, "pull", side.url, there)
        assert server_markers(served, path_of(there)) == server_markers(served, path_of(side.url)) != set()
