"""A history to push, and a repository in memory that is not made yet."""

from __future__ import annotations

import pytest
from builders import History, Repeatable

from smartserver.store.repository import PackRepository
from transports.memory import MemoryTransport


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def repository() -> PackRepository:
    return PackRepository(MemoryTransport(), "project", randomness=Repeatable())
