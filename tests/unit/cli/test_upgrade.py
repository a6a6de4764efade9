"""smartserver.cli.upgrade: a repository of an older release is changed, and changed back; no other command uses it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from cli_runs import run
from stored import grow, stored

ARCHIVE = Path(__file__).parents[1] / "store" / "old_repositories.tar.xz"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A repository of an older release."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = lambda member, _: member  # Not known to Python before 3.11.4.
        archive.extractall(tmp_path)
    return tmp_path / "file"


@pytest.mark.parametrize(
    "words",
    [
        ("verify",),
        ("stats",),
        ("pack",),
        ("recover",),
        ("config", "head", "main"),
        ("log",),
        ("delete", "--yes"),
        ("dump", "to"),
    ],
)
def test_every_other_command_names_it(words: tuple[str, ...], old: Path, tmp_path: Path) -> None:
    command, *others = (str(tmp_path / word) if word == "to" else word for word in words)
    result = run(command, old, *others)
    assert "version 1 of the repository format: `smartserver upgrade FOLDER`" in str(result.exception)
    assert result.exit_code == 1


def test_it_is_changed_and_changed_back(old: Path) -> None:
    assert run("upgrade", old).output == f"{old}: smartserver repository 2\n"
    assert "502 refs, 2 in maps" in run("stats", old).output
    assert run("upgrade", old).output == f"{old}: smartserver repository 2, the newest format: nothing to upgrade\n"
    assert run("upgrade", "--undo", old).output == f"{old}: what it was before its upgrade\n"
    assert (old / "root").exists()
    assert "no upgraded repository" in str(run("upgrade", "--undo", old).exception)


def test_one_of_this_release_stays_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "project"
    grow(place, stored(place))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run("upgrade", place).output == f"{place}: smartserver repository 2, the newest format: nothing to upgrade\n"
    assert "no upgraded repository" in str(run("upgrade", "--undo", place).exception)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("hpss://host/project", "own machine, with its folder"),
        ("sftp://host/project", "own machine, with its folder"),
        ("", "not a rep"),
    ],
)
def test_what_it_is_not_for(place: str, why: str, tmp_path: Path) -> None:
    assert why in str(run("upgrade", place or tmp_path).exception)
