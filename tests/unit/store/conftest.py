"""A history to push, an empty store, a repository in memory that is not made yet, and a folder to write packs in."""

from __future__ import annotations

import pytest
from builders import Clock, History, Repeatable
from calls import calls_of
from memory_transport import MemoryTransport
from twins import FORMS, prove_in_python

from smartserver.store.format import INCOMING, PACKS
from smartserver.store.repository import PackRepository
from smartserver.vcs.git.content import GitContents


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(clock: Clock) -> MemoryTransport:
    return MemoryTransport(clock)


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def repository(storage: MemoryTransport, clock: Clock) -> PackRepository:
    return PackRepository(storage, clock=clock, randomness=Repeatable())


@pytest.fixture
def folder() -> MemoryTransport:
    """A repository's folder as far as packs need it, with none."""
    made = MemoryTransport()
    made.make_directory(INCOMING)
    made.make_directory(PACKS)
    return made


@pytest.fixture(params=FORMS)
def proving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are proved by native parts, where they can do it, or by Python."""
    if request.param == "python":
        prove_in_python(monkeypatch)


@pytest.fixture
def headers_read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The revisions of git whose own records were read for a log."""
    return calls_of(monkeypatch, GitContents, "header", lambda _, revision: revision)
