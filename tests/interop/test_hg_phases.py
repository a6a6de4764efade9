"""plugins.mercurial.phase: phases of a repository that does not publish, and copies of a whole repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_sides import Served, fine
from hg_sides import HgSide, copy_hg_side, server_bookmarks, server_heads, server_markers

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

START = """
hg init "$URL"
smartserver config "$URL" publishing no >/dev/null
hg init a
a commit one; a commit two; a commit three
a hg phase --public -r 0
a hg push -q "$URL"
as b hg clone -q "$URL" b
"""


@pytest.fixture(scope="module")
def start(served: Served, tmp_path_factory: pytest.TempPathFactory) -> HgSide:
    made = HgSide(tmp_path_factory.mktemp("phases") / "ours", served.url("phases"), served)
    made.prepare(START)
    return made


@pytest.fixture
def side(start: HgSide, served: Served, tmp_path: Path) -> HgSide:
    """A copy of the start, with a repository of its own on the server."""
    path = f"phases-{tmp_path.name}"
    served.copy("phases", path)
    return copy_hg_side(start, tmp_path / "ours", served.url(path))


def phases(side: HgSide, user: str) -> list[str]:
    return log_phases(side, f"{user} hg log")


def log_phases(side: HgSide, program: str) -> list[str]:
    return fine(side.run(f"{program} -T '{{phase}} '"), 0).out.split()


def test_drafts_stay_drafts(side: HgSide) -> None:
    assert phases(side, "a") == phases(side, "b") == ["draft", "draft", "public"]


def test_a_phase_alone(side: HgSide) -> None:
    side.prepare("a hg phase --public -r 1")
    done = side.run('a hg push "$URL"')
    assert (done.status, done.counts.rounds) == (1, 2), done
    fine(side.run('b hg pull "$URL"'))
    assert phases(side, "b") == ["draft", "public", "public"]


def test_what_another_published_is_learnt_by_a_push(side: HgSide) -> None:
    side.prepare('b commit four; b hg phase --public -r tip; b hg push -q "$URL"')
    side.prepare("a hg update -q 0; a commit other")
    fine(side.run('a hg push -f "$URL"'), 3)
    assert phases(side, "a") == ["draft", "public", "public", "public"]


def test_push_publish(side: HgSide) -> None:
    done = side.run('a hg push --publish --config ui.interactive=no "$URL"')
    assert done.counts.rounds == 2, done
    assert phases(side, "a") == ["public"] * 3
    fine(side.run('b hg pull "$URL"'))
    assert phases(side, "b") == ["public"] * 3


def test_what_was_public_stays_public(side: HgSide) -> None:
    """Public changesets stay public when the repository stops publishing, and in a copy that does not publish."""
    side.prepare("""
    a hg push -q "$URL-published"; a commit four
    smartserver pull "$URL-published" copy >/dev/null
    smartserver config "$URL-published" publishing no >/dev/null
    a hg push -q "$URL-published"
    as b hg clone -q "$URL-published" changed
    smartserver push copy "$URL" >/dev/null
    as b hg clone -q "$URL" copied
    """)
    assert log_phases(side, "hg -R changed log") == ["draft", "public", "public", "public"]
    assert log_phases(side, "hg -R copied log") == ["public", "public", "public"]


# -- copies of a whole repository

HISTORY = r"""
hg init a
a commit one; a commit two; a hg update -q 0; a commit other; a hg commit -q --close-branch -m closed
a hg update -q 1; a hg branch -q topic; a commit topical; a hg update -q default
a hg bookmark -r topic mark
a hg push -q -f --new-branch "$URL"; a hg push -q -B mark "$URL" || true
"""
"""The script of a branch with two heads, one of them closed, another branch, and a bookmark."""


@pytest.fixture
def whole(served: Served, tmp_path: Path) -> HgSide:
    """A user with a repository of its own on the server, made by `HISTORY`."""
    made = HgSide(tmp_path / "whole", served.url(tmp_path.name), served)
    made.prepare(HISTORY)
    return made


def test_a_copy_has_all_heads_and_bookmarks(whole: HgSide, served: Served) -> None:
    path, pull = whole.path, f'smartserver pull "$URL" {served.root}/{whole.path}-copy'
    assert whole.prepare(pull).out.startswith("5 revisions")
    assert server_heads(served, f"{path}-copy") == server_heads(served, path)
    assert server_bookmarks(served, f"{path}-copy") == server_bookmarks(served, path) != {}
    fine(whole.run('a hg pull "$URL-copy"'))
    fine(whole.run('as c hg clone -q "$URL-copy" c'))
    has = whole.has()
    assert [row.replace("'mark'", "") for row in has["c"]] == [row.replace("'mark'", "") for row in has["a"]]
    whole.prepare(f'a hg update -q topic; a commit more; a hg push -q "$URL"; {pull}')
    assert server_heads(served, f"{path}-copy") == server_heads(served, path)


def test_a_copy_has_all_markers(whole: HgSide, served: Served) -> None:
    whole.prepare('smartserver config "$URL" publishing no; smartserver config "$URL" evolution yes')
    with open(whole.folder / ".hgrc", "a") as file:
        file.write("[experimental]\nevolution = all\n")
    whole.prepare('a commit new; a hg commit --amend -q -m newer; a hg push -q "$URL"')
    for _ in range(2):
        whole.prepare(f'smartserver pull "$URL" {served.root}/{whole.path}-copy')
        assert server_markers(served, f"{whole.path}-copy") == server_markers(served, whole.path) != set()
