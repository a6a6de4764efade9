"""The knowledge of a remote that the helper keeps may be missing, old, wrong or garbage: commands still do their work,
in one more round trip at most."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Side, fine, knowledge_file, missing_objects

from smartserver.client.knowledge import decode, encode
from smartserver.client.url import parse
from smartserver.records.model import Tip

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]

LARGE = 200_000
"""A size of content that no client would send twice; a push of this much announces its graph first."""


def folder_of(side: Side) -> Path:
    """Return the repository's folder on the server."""
    assert side.served is not None
    return side.served.root / side.path


def check_whole(side: Side, repository: str, *, refs: str = "--all") -> None:
    """Check that the local repository is sound, and that the server has all of it."""
    assert side.served is not None
    assert side.git(repository, "fsck", "--strict", "--no-dangling") == ""
    objects = side.git(repository, "rev-list", "--objects", "--no-object-names", refs).split()
    assert missing_objects(side.served, side.path, objects) == []


@pytest.fixture
def large(ours: Begin) -> Side:
    """`shared`, with much content that user a has pushed and user b has fetched."""
    side = ours("shared")
    (side.folder / "a" / "large").write_bytes(random.Random(1).randbytes(LARGE))
    side.prepare("a git add .; a git commit -qm large; a git push -q origin main; b git pull -q")
    return side


# -- an empty cache


def test_first_contact_of_a_large_repository_is_one_round_trip_more(large: Side) -> None:
    large.prepare("forget a")
    fine(large.run("a commit four; a git push origin main"), 3)
    assert large.git("a", "rev-parse", "main") in large.refs.values()


def test_a_fetch_without_a_cache_brings_only_what_is_new(large: Side) -> None:
    large.prepare("a commit four; a git push -q origin main; forget b")
    result = fine(large.run("b git fetch"), 2)
    assert result.counts.bytes_down < 3000
    check_whole(large, "b")


# -- a cache with nonsense in it


def test_a_cache_at_the_version_of_the_server_with_other_refs(ours: Begin) -> None:
    """The server was restored to an earlier state, and has new changes since."""
    side = ours("shared")
    path = knowledge_file(side.folder / ".cache" / "a" / "smartserver" / "remotes", side.url)
    known = decode(path.read_bytes(), parse(side.url).key)
    known.refs[b"refs/heads/main"] = (Tip(b"x" * 20),)
    path.write_bytes(encode(known))
    wrong = side.run("a git fetch")
    assert wrong.status == 128
    assert "was discarded: try again" in wrong.err
    assert len(wrong.err.splitlines()) == 1, wrong.err
    fine(side.run("a git fetch"), 2)
    check_whole(side, "a")


# -- a repository that is not the one remembered


def test_a_repository_that_is_gone_is_made_anew_by_the_next_push(large: Side) -> None:
    shutil.rmtree(folder_of(large))
    large.prepare("a commit four")
    fine(large.run("a git push origin main"), 3)
    assert large.refs == {"refs/heads/main": large.git("a", "rev-parse", "main")}
    check_whole(large, "a", refs="main")


def restored_to_the_same_version(side: Side, backup: Path, meanwhile: str) -> None:
    """User a pushes twice, the earlier backup is restored, and user b pushes twice: the version is the same again."""
    shutil.copytree(folder_of(side), backup)
    side.prepare("a commit four; a git push -q origin main; a commit five; a git push -q origin main")
    shutil.rmtree(folder_of(side))
    shutil.copytree(backup, folder_of(side))
    side.prepare(meanwhile)


def test_after_a_restore_a_fetch_learns_what_is_there(ours: Begin, tmp_path: Path) -> None:
    side = ours("shared")
    restored_to_the_same_version(side, tmp_path / "b", "b git push -q origin main:x; b git push -q origin main:y")
    fine(side.run("a git fetch"), 2)
    told = side.run("a git ls-remote --heads origin")
    assert {line.split()[1] for line in told.said.splitlines() if "refs/heads/" in line} == {
        ref for ref in side.refs if ref.startswith("refs/heads/")
    }
    assert side.git("a", "rev-parse", "origin/x", "origin/y") == side.git("b", "rev-parse", "main", "main")


@pytest.mark.parametrize("option", ["", "--force-with-lease"])
def test_after_a_restore_a_push_is_told_what_is_there(ours: Begin, tmp_path: Path, option: str) -> None:
    """A push reports neither that everything is up to date nor that parents are missing."""
    side = ours("shared")
    restored_to_the_same_version(side, tmp_path / "b", "b commit B; b git push -q; b commit C; b git push -q")
    result = side.run(f"a git push {option} origin main")
    assert (result.status, "rejected" in result.said) == (1, True), result.said
    assert side.refs["refs/heads/main"] == side.git("b", "rev-parse", "main")
