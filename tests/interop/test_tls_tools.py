"""cli.tls_relay, client.media.tls_relay, client.trust: git over TLS, with an agent that outlives its commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_sides import User
from agents import of_its_own
from secure_sides import Secure

from smartserver.agent.lending import ask
from smartserver.agent.messages import Status, decode_held

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

HELD = "1 round trip on a held connection"
CONNECTED = "1 round trip on a fresh connection"


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    made = Secure(tmp_path / "server")
    yield made
    made.server.close()


def test_git_pushes_with_a_token_on_one_held_connection(secure: Secure, tmp_path: Path) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    with of_its_own() as agent:
        user = User(folder, agent, secure.server, os.path.dirname(sys.executable))
        user.environment["SMARTSERVER_TOKEN"] = f"127.0.0.1:{secure.server.direct[1]}={secure.token()}"
        user(f"git remote set-url origin '{secure.url('p')}'")
        first = user("git push origin main")
        assert "access-denied" in first, "the server asks for a token once"
        assert "2 round trips on a fresh connection" in first
        for _ in range(2):
            user.commit()
            assert HELD in user("git push origin main")
        assert HELD in user("git ls-remote origin")
        assert [line.where for line in ask(Status(), decode_held, agent)[0].lines] == [f"{secure.above}/"]
        user("smartserver agent stop")
        assert CONNECTED in user("git fetch origin")
