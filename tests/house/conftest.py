"""The trees of the project's files are let go after the tests that read them: later tests would carry them about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sources import forget


@pytest.fixture(scope="package", autouse=True)
def _trees_are_let_go() -> Iterator[None]:
    yield
    forget()
