"""server.shared_files: the thread that asks for them outlives every error, and while errors last nobody is let in."""

from __future__ import annotations

from queue import SimpleQueue
from typing import cast

import pytest

from smartserver.errors import Unsupported
from smartserver.server import shared_files
from smartserver.server.shared_files import STALE, SharedFiles
from smartserver.store.postgres import Database
from transports.errors import TransportFailed

TIMEOUT = 60
"""Seconds after which the thread that should ask is missing."""


class Answers:
    """A database that answers as it is told to."""

    def __init__(self) -> None:
        self.given, self.asked = SimpleQueue[int | Exception](), SimpleQueue[None]()

    def versions(self) -> dict[str, int]:
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
    database.given.put(away)  # The call and the thread ask at once.
    database.given.put(away)
    with pytest.raises(TransportFailed, match="it is away"):
        files.version("access")
    database.asked.get(timeout=TIMEOUT)
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
