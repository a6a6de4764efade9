"""A history to push, an empty store, a repository in memory that is not made yet, and a folder to write packs in."""

from __future__ import annotations

import pytest
from builders import History, Repeatable
from memory_transport import MemoryTransport
from twins import FORMS, prove_in_python

from smartserver.store.format import INCOMING, PACKS
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.local import LocalTransport


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: object) -> Transport:
    return MemoryTransport() if request.param == "memory" else LocalTransport(str(tmp_path))


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def repository() -> PackRepository:
    return PackRepository(MemoryTransport(), "project", randomness=Repeatable())


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
