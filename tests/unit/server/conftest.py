"""A served repository with four commits of a line of six, and a connection to it; a server without connections."""

from __future__ import annotations

import pytest
from builders import MAIN
from carriers import connections_of
from dialogs import Dialog, Served
from twisted.internet.task import Clock

from smartserver.server.connections import Connections


@pytest.fixture
def served() -> Served:
    served = Served()
    line = served.history.line(6)
    served.push(line[:4], {MAIN: line[3]})
    return served


@pytest.fixture
def line(served: Served) -> list[bytes]:
    return list(served.history.parents)


@pytest.fixture
def dialog(served: Served) -> Dialog:
    return Dialog(served.site)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connections(clock: Clock) -> Connections:
    return connections_of(clock)
