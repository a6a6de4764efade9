"""A server for the commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from smartserver.cli.servers import Server, Workspace


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Workspace("test") as workspace:
        yield workspace.start_ours()
