"""smartserver.cli.recover: what the log lacks is listed; it is repaired and restored when that was confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import MAIN, History, push, refs_of
from click.testing import CliRunner, Result

from smartserver.cli.main import group
from smartserver.store.record import record_path
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
def damaged(tmp_path: Path, history: History, line: list[bytes]) -> PackRepository:
    """A repository whose record 3 is damaged: it brought two revisions, record 4 made another branch."""
    repository = PackRepository(LocalTransport(tmp_path), "project")
    push(repository, history, line[:1], {MAIN: line[0]})
    push(repository, history, line[1:], {MAIN: line[2]})
    push(repository, history, [], {SIDE: line[0]})
    record = tmp_path / "project" / record_path(3)
    record.write_bytes(record.read_bytes()[:-1])
    return PackRepository(LocalTransport(tmp_path), "project")


def run(folder: Path, *arguments: str, answer: str | None = None, command: str = "recover") -> Result:
    return CliRunner().invoke(group, [command, str(folder / "project"), *arguments], input=answer)


def test_it_lists_what_there_is(damaged: PackRepository, tmp_path: Path, line: list[bytes]) -> None:
    result = run(tmp_path, "--list")
    assert result.exit_code == 0
    *misfits, first, second = result.output.splitlines()
    assert misfits == [
        "log/0000000004 does not follow change 2",
        "log/0000000003 at byte 28: the content does not match its check",
    ]
    assert f"refs/heads/main -> {line[2].hex()[:8]}  (may not have been acknowledged)" in first
    assert f"refs/heads/side -> {line[0].hex()[:8]}" in second
    assert "may not have been acknowledged" not in second
    assert refs_of(damaged) == {MAIN: line[0]}
    assert (tmp_path / "project" / record_path(3)).exists()


def test_it_asks_repairs_the_log_and_restores_what_was_surely_made(
    damaged: PackRepository, tmp_path: Path, line: list[bytes]
) -> None:
    assert run(tmp_path, answer="n\n").exit_code == 1
    assert (tmp_path / "project" / record_path(3)).exists()
    result = run(tmp_path, answer="y\n")
    assert "Continue from change 2, and restore 1 change? [y/N]" in result.output
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "1 change restored, 1 left")
    assert refs_of(damaged) == {MAIN: line[0], SIDE: line[0]}
    result = run(tmp_path, "--yes")
    assert result.exit_code == 1
    assert "name a change by its ID, or say --all" in str(result.exception)
    assert run(tmp_path, "--yes", "--all").output.endswith("1 change restored, 0 left\n")
    assert refs_of(damaged) == {MAIN: line[2], SIDE: line[0]}
    assert run(tmp_path).output == f"{tmp_path}/project: the log has everything that is there\n"


def test_a_change_is_named_by_its_id(damaged: PackRepository, tmp_path: Path, line: list[bytes]) -> None:
    first, second = (each.split()[0] for each in run(tmp_path, "--list").output.splitlines()[2:])
    assert "'zz' names no change" in str(run(tmp_path, "--yes", "zz").exception)
    assert run(tmp_path, "--yes", first).output.endswith("1 change restored, 1 left\n")
    assert refs_of(damaged) == {MAIN: line[2]}
    assert f"{first!r} names no change" in str(run(tmp_path, "--yes", first).exception)
    assert run(tmp_path, "--yes", second).output.endswith("1 change restored, 0 left\n")


def test_verify_tells_of_it(damaged: PackRepository, tmp_path: Path) -> None:
    result = run(tmp_path, command="verify")
    assert result.exit_code == 1
    assert "log/0000000003" in result.output
    assert result.output.endswith("2 changes on disk that the log lacks: smartserver recover lists them\n")


def test_a_repository_that_lost_its_format_is_one_again(
    damaged: PackRepository, tmp_path: Path, line: list[bytes]
) -> None:
    (tmp_path / "project" / "format").unlink()
    assert "what is left of one: 'packs' files" in str(run(tmp_path, command="verify").exception)
    assert run(tmp_path, "--yes", "--all").exit_code == 0
    assert refs_of(damaged) == {MAIN: line[2], SIDE: line[0]}


def test_where_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    assert "is not a repository of smartserver" in str(run(tmp_path).exception)


@pytest.mark.parametrize(
    "words", [("--list", "--all"), ("--list", "--yes"), ("--list", "abcd1234"), ("--all", "abcd1234")]
)
def test_options_that_would_be_ignored_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = run(tmp_path, *words)
    assert result.exit_code == 2
    assert "leave " in result.output
