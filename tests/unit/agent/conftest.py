"""A folder for sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agents import of_its_own


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with of_its_own() as its:
        yield its
