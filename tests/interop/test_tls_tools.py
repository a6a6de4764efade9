"""cli.tls_relay, client.media.tls_relay, client.trust, plugins.breezy.server: git and brz over TLS, with an agent that
outlives their commands."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_rules import ADMIN
from agents import of_its_own
from certificates import Authority
from git_sides import Served, environment

from smartserver.agent.lending import ask
from smartserver.agent.messages import Status, decode_held
from smartserver.server.tokens import TokenChanges

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

PATIENCE = 60.0
HELD = "1 round trip on a held connection"
CONNECTED = "1 round trip on a fresh connection"


class Secure:
    """A server with TLS, whose users have tokens, and an agent."""

    def __init__(self, folder: Path, agent: dict[str, str]) -> None:
        self.folder, self.agent = folder, agent
        authority = Authority(folder / "authority")
        certificate, key = authority.sign("127.0.0.1")
        access = folder / "access.toml"
        access.write_text(ADMIN)
        self.token = TokenChanges(access).create("anna", int(time.time()), None, None, read_only=False)[0]
        words = ["--access", str(access), "--tls", str(certificate), "--tls-key", str(key), "--require-tls"]
        self.server = Served(folder, *words)
        self.ca = f"?ca={authority.file}"
        self.given = f"127.0.0.1:{self.server.direct[1]}={self.token}"

    def url(self, path: str) -> str:
        return f"hpss+tls://127.0.0.1:{self.server.direct[1]}/{path}"

    def held(self) -> list[str]:
        """The servers of the connections that the agent holds."""
        return [line.where for line in ask(Status(), decode_held, self.agent)[0].lines]


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    (tmp_path / "server").mkdir()
    with of_its_own() as agent:
        made = Secure(tmp_path / "server", agent)
        yield made
        made.server.close()


def test_git_pushes_with_a_token_on_one_held_connection(secure: Secure, tmp_path: Path) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    its = {
        **environment(folder),
        **secure.agent,
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), "/usr/bin", "/bin"]),
        "SMARTSERVER_DEBUG": "hpss",
        "SMARTSERVER_TOKEN": secure.given,
    }

    def run(command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=its, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        return done.stdout + done.stderr

    run("git init -q -b main . && git commit -q --allow-empty -m one")
    run(f"git remote add origin '{secure.url('p')}{secure.ca}'")
    first = run("git push origin main")
    assert "access-denied" in first, "the server asks for a token once"
    assert "2 round trips on a fresh connection" in first
    for _ in range(2):
        run("git commit -q --allow-empty -m more")
        assert HELD in run("git push origin main")
    assert HELD in run("git ls-remote origin")
    assert secure.held() == [secure.url("")]
    run("smartserver agent stop")
    assert CONNECTED in run("git fetch origin")
