"""server.watched, shared_files: a file is read again when it changes, and one that cannot be used changes nothing."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest
from calls import raising

from smartserver.errors import Unsupported
from smartserver.server import shared_files
from smartserver.server.shared_files import STALE, SharedFiles
from smartserver.server.watched import MAX_FILE, UnusableFile, WatchedFile
from smartserver.store.postgres import Database
from transports.errors import TransportFailed


class Numbers(WatchedFile[list[int]]):
    what = "numbers"

    def parse(self, content: bytes) -> list[int]:
        try:
            return [int(each) for each in content.split()]
        except ValueError as wrong:
            raise UnusableFile(str(wrong)) from None

    def count(self, content: list[int]) -> int:
        return len(content)


class Optional(Numbers):
    def absent(self) -> list[int]:
        return []


def test_it_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "numbers"
    path.write_text("1 2")
    file = Numbers(path)
    assert file.content == [1, 2]
    path.write_text("3")
    assert (file.content, file.content) == ([3], [3])
    new = tmp_path / "new"
    new.write_text("4")
    os.utime(new, ns=(os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns))
    new.replace(path)  # Of the same size and time.
    assert file.content == [4]
    assert caplog.messages == [f"{path}: 1 numbers are in force"] * 2


@pytest.mark.parametrize("content", [b"x", b"1" * (MAX_FILE + 1), None])
def test_one_that_cannot_be_used_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    path = tmp_path / "numbers"
    path.write_text("1")
    file = Numbers(path)
    path.unlink() if content is None else path.write_bytes(content)
    assert (file.content, file.content) == ([1], [1])
    (said,) = caplog.messages
    assert said.startswith(f"{path} is not used, the numbers stay as they were: ")
    path.write_text("2")
    assert file.content == [2]


def test_one_that_cannot_be_read_for_a_moment_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what was taken back would count until somebody changes the file once more."""
    path = tmp_path / "numbers"
    path.write_text("1")
    file = Numbers(path)
    path.write_text("22")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", raising(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
        assert file.content == [1]
    assert file.content == [22]


def test_one_that_need_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    file = Optional(path)
    assert file.content == []
    path.write_text("1")
    assert file.content == [1]
    path.unlink()
    assert file.content == []
    with pytest.raises(UnusableFile, match="Is a directory"):
        Optional(tmp_path)
    with pytest.raises(UnusableFile, match="No such file"):
        Numbers(path)


TIMEOUT = 60
"""Seconds after which the thread that should ask is missing."""


class Answers:
    """A database that is away for the first call, and answers the thread as it is told to."""

    def __init__(self) -> None:
        self.given, self.asked = SimpleQueue[int | Exception](), SimpleQueue[None]()

    def versions(self) -> dict[str, int]:
        if threading.current_thread() is threading.main_thread():
            raise TransportFailed("", "it is away")
        self.asked.put(None)
        answer = self.given.get()
        if isinstance(answer, Exception):
            raise answer
        return {"access": answer}

    def file(self, name: str) -> bytes:
        return b"rules"


def test_the_database_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files, "PERIOD", 0)
    database, now = Answers(), [0.0]
    files = SharedFiles(cast("Database", database), lambda: now[0])

    def settle(*answers: int | Exception) -> None:
        """Each has been dealt with when there is one more question."""
        for each in answers:
            database.given.put(each)
            database.asked.get(timeout=TIMEOUT)

    away = TransportFailed("", "it is away")
    database.given.put(away)
    with pytest.raises(TransportFailed, match="it is away"):
        files.version("access")
    database.asked.get(timeout=TIMEOUT)
    database.asked.get(timeout=TIMEOUT)
    settle(1)
    assert (files.version("access"), files.read("access")) == (1, b"rules")
    settle(Unsupported("a database with the logs of another", "one"), ValueError(), away)
    assert files.version("access") == 1
    now[0] += STALE
    with pytest.raises(TransportFailed, match="the database with the rules of access cannot be reached"):
        files.version("access")
    settle(2, 3)  # The first answers what was asked before that time passed.
    assert files.version("access") == 3
