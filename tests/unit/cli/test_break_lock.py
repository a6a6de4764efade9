"""smartserver.cli.break_lock: who has the lock is said, and it is broken when that was confirmed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import click
import pytest
from builders import MAIN, History, push
from click.testing import CliRunner, Result
from stored import stored

from smartserver.cli.errors import CommandError
from smartserver.cli.main import group
from smartserver.store.format import Discipline
from smartserver.store.lock_folder import LockFolder
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport


@pytest.fixture
def left() -> Iterator[list[AbstractContextManager[object]]]:
    """Locks that nobody lets go of while a test runs."""
    made: list[AbstractContextManager[object]] = []
    yield made
    made.clear()


@pytest.fixture
def locked(tmp_path: Path, left: list[AbstractContextManager[object]]) -> Path:
    """A repository whose lock a writer left."""
    repository = PackRepository(LocalTransport(tmp_path), "project", discipline=Discipline.FOLDER)
    history = History()
    line = history.line(1)
    push(repository, history, line, {MAIN: line[0]})
    left.append(LockFolder(repository.folder, "", os.urandom).hold(0))
    left[0].__enter__()
    return tmp_path / "project"


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(group, ["break-lock", *arguments], input=answer)


def held(folder: Path) -> bool:
    return (folder / "lock" / "held").exists()


def test_it_says_who_and_asks(locked: Path) -> None:
    result = run(str(locked), answer="n\n")
    assert result.exit_code == 1
    assert f"{locked}: the lock is held by " in result.output
    assert f"(process {os.getpid()} on {os.uname().nodename}) since " in result.output
    assert held(locked)
    result = run(str(locked), answer="y\n")
    assert result.exit_code == 0
    assert result.output.endswith(f"{locked}: the lock is broken\n")
    assert not held(locked)
    assert run(str(locked)).output == f"{locked}: nobody holds the lock\n"


def test_by_force_it_does_not_ask(locked: Path) -> None:
    assert run("--force", str(locked)).exit_code == 0
    assert not held(locked)


def test_a_lock_that_changed_hands_is_not_broken(
    locked: Path, left: list[AbstractContextManager[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = PackRepository(LocalTransport(locked))

    def meanwhile(*_: object, **__: object) -> bool:
        holder = repository.lock_holder()
        assert holder is not None
        repository.break_lock(holder)
        left.append(LockFolder(repository.folder, "", os.urandom).hold(0))
        left[1].__enter__()
        return True

    monkeypatch.setattr(click, "confirm", meanwhile)
    result = run(str(locked))
    assert isinstance(result.exception, CommandError)
    assert "changed hands; nothing was done" in str(result.exception)
    assert held(locked)


def test_a_file_repository_has_none_to_break(tmp_path: Path) -> None:
    stored(tmp_path / "project")
    result = run(str(tmp_path / "project"))
    assert isinstance(result.exception, CommandError)
    assert str(result.exception).count("\n") == 0
    assert "a lock that ends with its holder (swap=file)" in str(result.exception)


def test_where_there_is_no_repository(tmp_path: Path) -> None:
    result = run(str(tmp_path))
    assert isinstance(result.exception, CommandError)
    assert "is not a repository of smartserver" in str(result.exception)
