"""cli.histories: copies of repositories and bundles, and histories made here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smartserver.cli.errors import CommandError
from smartserver.cli.histories import add_commit, copy, generate
from smartserver.cli.servers import run

ENVIRONMENT = os.environ | {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    return run(["git", *arguments], folder, ENVIRONMENT)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two branches, `trunk` the current one, and a tag."""
    folder = tmp_path / "source"
    generate(folder, ENVIRONMENT, ("another", "trunk"), 5)
    git(folder, "symbolic-ref", "HEAD", "refs/heads/trunk")
    git(folder, "tag", "v1", "trunk~1")
    return folder


def refs(folder: Path) -> str:
    return git(folder, "for-each-ref", "--format=%(objectname) %(refname)")


def test_generated_branches_share_no_commit(source: Path) -> None:
    assert git(source, "rev-list", "--count", "another").strip() == "5"
    assert git(source, "rev-list", "--count", "--all").strip() == "10"
    git(source, "fsck", "--strict")


def test_a_repository_is_copied_with_its_branch(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert copy(source, target, ENVIRONMENT) == "trunk"
    assert refs(target) == refs(source)
    assert git(target, "symbolic-ref", "HEAD") == "refs/heads/trunk\n"


@pytest.mark.parametrize(("what", "branch"), [(("--all", "HEAD"), "trunk"), (("another", "v1"), "another")])
def test_a_bundle_is_copied_with_its_branch(what: tuple[str, ...], branch: str, source: Path, tmp_path: Path) -> None:
    bundle, target = tmp_path / "a.bundle", tmp_path / "target"
    git(source, "bundle", "create", "--quiet", str(bundle), *what)
    assert copy(bundle, target, ENVIRONMENT) == branch
    if branch == "trunk":
        assert refs(target) == refs(source)


def test_without_a_source_one_is_made(tmp_path: Path) -> None:
    assert copy(None, tmp_path / "target", ENVIRONMENT) == "main"
    assert int(git(tmp_path / "target", "rev-list", "--count", "main")) > 100


def test_a_commit_goes_on_top_of_a_branch_or_at_its_beginning(source: Path) -> None:
    add_commit(source, ENVIRONMENT, "trunk", {"new": b"1\n", "folder/other": b"\0\xff"})
    assert git(source, "rev-list", "--count", "trunk").strip() == "6"
    assert git(source, "show", "trunk:new") == "1\n"
    add_commit(source, ENVIRONMENT, "fresh", {"new": b"1\n"})
    assert git(source, "rev-list", "--count", "fresh").strip() == "1"


@pytest.mark.parametrize("content", [None, b"no bundle\n"])
def test_what_is_no_repository_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "thing"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(CommandError, match="is not a git"):
        copy(path, tmp_path / "target", ENVIRONMENT)


def test_a_repository_without_branches_or_cut_off_is_refused(source: Path, tmp_path: Path) -> None:
    empty, shallow = tmp_path / "empty", tmp_path / "shallow"
    git(tmp_path, "init", "--quiet", "--bare", str(empty))
    with pytest.raises(CommandError, match="no branch"):
        copy(empty, tmp_path / "one", ENVIRONMENT)
    git(tmp_path, "clone", "--quiet", "--bare", "--depth=2", source.as_uri(), str(shallow))
    with pytest.raises(CommandError, match="shallow"):
        copy(shallow, tmp_path / "two", ENVIRONMENT)
