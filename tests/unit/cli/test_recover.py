"""smartserver.cli.recover: what the root does not know is listed, and restored when that was confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import MAIN, History, push, refs_of
from click.testing import CliRunner, Result

from smartserver.cli.main import group
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

SIDE = b"refs/heads/side"


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def line(history: History) -> list[bytes]:
    return history.line(3)


@pytest.fixture
def put_back(tmp_path: Path, history: History, line: list[bytes]) -> PackRepository:
    """A repository whose first root was put back after two changes."""
    repository = PackRepository(LocalTransport(tmp_path), "project")
    push(repository, history, line[:1], {MAIN: line[0]})
    root = (tmp_path / "project" / "root").read_bytes()
    push(repository, history, line[1:], {MAIN: line[2]})
    push(repository, history, [], {SIDE: line[1]})
    (tmp_path / "project" / "root").write_bytes(root)
    return repository


def run(folder: Path, *arguments: str, answer: str | None = None, command: str = "recover") -> Result:
    return CliRunner().invoke(group, [command, *arguments, str(folder / "project")], input=answer)


def ids(folder: Path) -> list[str]:
    return [each.split()[0] for each in run(folder, "--list").output.splitlines()]


def test_it_lists_what_there_is(put_back: PackRepository, tmp_path: Path, line: list[bytes]) -> None:
    result = run(tmp_path, "--list")
    assert result.exit_code == 0
    first, second = result.output.splitlines()
    assert f"refs/heads/main -> {line[2].hex()[:8]}" in first
    assert "may not have been acknowledged" not in first
    assert f"refs/heads/side -> {line[1].hex()[:8]}  (may not have been acknowledged)" in second
    assert refs_of(put_back) == {MAIN: line[0]}


def test_it_asks_and_restores_what_was_surely_made(put_back: PackRepository, tmp_path: Path, line: list[bytes]) -> None:
    result = run(tmp_path, answer="n\n")
    assert result.exit_code == 1
    assert refs_of(put_back) == {MAIN: line[0]}
    result = run(tmp_path, answer="y\n")
    assert result.exit_code == 0
    assert result.output.endswith("1 change restored, 1 left\n")
    assert refs_of(put_back) == {MAIN: line[2]}
    result = run(tmp_path, "--yes")
    assert result.exit_code == 1
    assert "name a change by its ID, or say --all" in str(result.exception)
    assert run(tmp_path, "--yes", "--all").output.endswith("1 change restored, 0 left\n")
    assert refs_of(put_back) == {MAIN: line[2], SIDE: line[1]}
    assert run(tmp_path).output == f"{tmp_path}/project: the root knows everything that is there\n"


def test_a_change_is_named_by_its_id(put_back: PackRepository, tmp_path: Path, line: list[bytes]) -> None:
    first, second = ids(tmp_path)
    path = str(tmp_path / "project")
    result = CliRunner().invoke(group, ["recover", "--yes", path, second])
    assert result.exit_code == 1  # What it rests on is not there.
    assert f"{second} was not restored: " in result.output
    result = CliRunner().invoke(group, ["recover", "--yes", path, "zz"])
    assert "'zz' names no change" in str(result.exception)
    result = CliRunner().invoke(group, ["recover", "--yes", path, first, second])
    assert result.output.endswith("2 changes restored, 0 left\n")
    assert refs_of(put_back) == {MAIN: line[2], SIDE: line[1]}
    result = CliRunner().invoke(group, ["recover", "--yes", path, first])
    assert f"{first!r} names no change" in str(result.exception)


def test_verify_tells_of_it(put_back: PackRepository, tmp_path: Path) -> None:
    result = run(tmp_path, command="verify")
    assert result.exit_code == 1
    assert "changes that were made and that it does not know: 1 (smartserver recover" in result.output
    assert result.output.endswith("2 changes on disk unknown to the root: smartserver recover lists them\n")
    assert put_back.exists()


@pytest.mark.parametrize(
    "words", [("--list", "--all"), ("--list", "--yes"), ("--list", "abcd1234"), ("--all", "abcd1234")]
)
def test_options_that_would_be_ignored_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = run(tmp_path, *words)
    assert result.exit_code == 2
    assert "leave " in result.output
