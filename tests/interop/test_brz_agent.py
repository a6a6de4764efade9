"""plugins.breezy.server: brz with an agent that outlives its commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agents import of_its_own
from brz_sides import Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


@pytest.fixture
def agent() -> Iterator[dict[str, str]]:
    with of_its_own() as its:
        yield its


def connections(users: Users, *words: str, **variables: str) -> int:
    """Return the number of connections that a command of user b makes."""
    done = users.run("b", *words, **variables)
    assert done.status == 0, done.said
    return done.counts.connections


def test_the_next_command_has_the_connection_of_the_last(users: Users, agent: dict[str, str]) -> None:
    assert connections(users, "pull", **agent) == 1
    for words in (["pull"], ["missing"], ["tags", "-d", users.url()], ["push", users.url("another")]):
        assert connections(users, *words, **agent) == 0
    assert connections(users, "pull", **{**agent, "SMARTSERVER_AGENT": "0"}) == 1
