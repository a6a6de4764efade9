"""plugins.breezy.credentials, plugins.breezy.server: brz with a token of authentication.conf, or of the environment."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_rules import ADMIN
from brz_sides import SHIM, Users
from git_sides import Served

from smartserver.server.tokens import TokenChanges

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

PATIENCE = 60.0


@pytest.fixture
def access(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(ADMIN)
    return path


@pytest.fixture
def users(tmp_path: Path, access: Path) -> Iterator[Users]:
    """User a has a branch; the server knows users by tokens."""
    (tmp_path / "server").mkdir()
    server = Served(tmp_path / "server", "--access", str(access))
    made = Users(tmp_path / "users", server, "team")
    made.make("a")
    made.commit("a", "one")
    yield made
    server.close()


@pytest.fixture
def token(access: Path) -> str:
    return TokenChanges(access).create("anna", int(time.time()), None, None, read_only=False)[0]


def test_one_that_the_environment_has(users: Users, token: str) -> None:
    given = f"{users.url().split('/')[2]}={token}"
    users.fine("a", "push", users.url(), SMARTSERVER_TOKEN=given)
    second = users.run("a", "revno", users.url(), SMARTSERVER_TOKEN=given)
    assert (second.status, second.out) == (0, "1\n"), second.said
    assert second.counts.rounds == 2, "one to connect, and one that has the token"


def test_one_that_breezy_keeps(users: Users, token: str) -> None:
    home = users.folder / "breezys"
    (home / "breezy").mkdir(parents=True)
    kept = home / "breezy" / "authentication.conf"
    kept.write_text(f"[ours]\nscheme = hpss\nhost = 127.0.0.1\nuser = anna\npassword = {token}\n")
    kept.chmod(0o600)
    users.fine("a", "push", users.url(), BRZ_HOME=str(home))
    assert users.run("a", "revno", users.url(), BRZ_HOME=str(home)).counts.rounds == 2


def test_one_that_the_user_types(users: Users, token: str) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "breezy", "push", users.url()],
        cwd=users.path("a"), env=users._environment("a", f"hpss@{SHIM}", {}), input=f"{token}\n", text=True,
        capture_output=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    assert f"Token for hpss://127.0.0.1:{users.served.proxy.port}: " in asked.stderr
    assert token not in asked.stderr + users.log.read_text()
