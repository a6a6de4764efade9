"""A server to talk to, for tests that do not mind whose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from watching import answering


@pytest.fixture
def port() -> Iterator[int]:
    with answering() as port:
        yield port
