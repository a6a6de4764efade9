"""plugins.git.credentials, cli.git_remote_run, cli.zygote: git with tokens that its credential helpers keep."""

from __future__ import annotations

import contextlib
import os
import pty
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import agent_sides
import pytest
from access_rules import OPEN
from agent_sides import wait_until, zygote_of
from agents import of_its_own, workers
from git_sides import Served
from scripts import script

from smartserver.server.tokens import TokenChanges, TokenFile, token_path

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

KEEPER = """\
cd "$(dirname "$0")"
echo "$1" >> log
case $1 in
get) test -f kept && cat kept ;;
store) grep -e username= -e password= > kept ;;
erase) rm -f kept ;;
esac
"""


class User(agent_sides.User):
    """A user with a clone, a credential helper, and perhaps an agent."""

    def __init__(self, folder: Path, server: Served, access: Path, agent: dict[str, str]) -> None:
        super().__init__(folder, agent, server, os.path.dirname(sys.executable))
        self.server = server
        self.changes = TokenChanges(access)
        self.tokens = TokenFile(token_path(access))
        self.kept = folder / "kept"
        keeper = script(folder / "keeper", KEEPER)
        self(f"git config --global credential.helper {keeper}")
        self("git config --global protocol.hpss.allow always")

    @property
    def open(self) -> str:
        """The URL of a missing repository that everybody may read."""
        return self.url.replace("project", "open")

    def token(self) -> str:
        return self.changes.create("anna", int(time.time()), None, None, read_only=False)[0]

    def keep(self, token: str) -> None:
        self.kept.write_text(f"username=x\npassword={token}\n")

    def revoke(self, token: str) -> None:
        found = self.tokens.content.find(token)
        assert found is not None
        self.changes.revoke(found.text.id)

    def given(self, token: str) -> str:
        """Return the environment value of a user with a token."""
        return f"{self.url.split('/')[2]}={token}"

    def log(self) -> list[str]:
        """Return the questions to the credential helper since the last call."""
        log = self.folder / "log"
        said = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return said


@pytest.fixture
def access(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(OPEN)
    return path


@pytest.fixture
def server(tmp_path: Path, access: Path) -> Iterator[Served]:
    folder = tmp_path / "server"
    folder.mkdir()
    made = Served(folder, "--access", str(access))
    yield made
    made.close()


@pytest.fixture
def with_agent() -> bool:
    return False


WITH_AN_AGENT_TOO = pytest.mark.parametrize("with_agent", [False, True])


@pytest.fixture
def user(tmp_path: Path, server: Served, access: Path, with_agent: bool) -> Iterator[User]:
    folder = tmp_path / "user"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(of_its_own()) if with_agent else {}
        found = User(folder, server, access, agent)
        if agent:
            found(f"git ls-remote {found.open}", status=128)
            found.wait_until_loaded()
        yield found


@WITH_AN_AGENT_TOO
def test_a_token_that_git_keeps(user: User) -> None:
    user.keep(user.token())
    assert "2 round trips" in user(f"git push {user.url} main")
    assert user.log() == ["get", "store"]
    assert "2 round trips" not in user(f"git ls-remote {user.url}")
    assert user.log() == ["get"]
    assert "refs/heads/main" in user(f"git ls-remote {user.url}")


def test_where_none_is_needed_none_is_looked_for(user: User) -> None:
    user.keep(user.token())
    assert "there is no repository at 'open'" in user(f"git ls-remote {user.open}", status=128)
    assert user.log() == []


@WITH_AN_AGENT_TOO
def test_one_that_the_environment_has(user: User) -> None:
    token = user.token()
    user(f"git push {user.url} main", SMARTSERVER_TOKEN=user.given(token))
    assert "2 round trips" not in user(f"git ls-remote {user.url}", SMARTSERVER_TOKEN=user.given(token))
    assert user.log() == []
    said = user(f"git ls-remote {user.url}", status=128, SMARTSERVER_TOKEN=user.given("hpss_wrong"))
    assert "not allowed to log in: the token is unknown; it is the one in SMARTSERVER_TOKEN\n" in said
    said = user(f"git ls-remote {user.url}", status=128, SMARTSERVER_TOKEN=f"example.org={token}")
    assert "allow anonymous nothing here; SMARTSERVER_TOKEN has none for this server: set SMARTSERVER_TOKEN to " in said


def test_one_that_is_revoked(user: User) -> None:
    token = user.token()
    user.keep(token)
    user(f"git push {user.url} main")
    user.log()
    user.revoke(token)
    user.token()
    assert "not allowed to log in: the token is unknown; no token was given\n" in user(
        f"git ls-remote {user.url}", status=128
    )
    assert user.log() == ["get", "erase", "get", "get"]
    assert not user.kept.exists()
    user.keep(user.token())
    assert "refs/heads/main" in user(f"git ls-remote {user.url}")


def test_what_a_token_is_not_for_leaves_it_where_it_is(user: User) -> None:
    user.keep(user.changes.create("anna", 0, None, None, read_only=True)[0])
    assert "is for reading alone" in user(f"git push {user.url} main", status=1)
    assert user.log() == ["get", "store"]


def test_git_asks_by_its_own_program(user: User) -> None:
    asking = script(user.folder / "asking", f"echo {user.token()}")
    user(f"git push {user.url} main", GIT_ASKPASS=asking)
    assert user.log() == ["get", "get", "store"]
    assert "refs/heads/main" in user(f"git ls-remote {user.url}")


def typing(user: User, answer: bytes) -> tuple[int, bytes]:
    """Push at a terminal, answer git's question, and return the status and the shown text."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(user.folder)
        os.execvpe("git", ["git", "push", user.url, "main"], user.environment | {"GIT_TERMINAL_PROMPT": "1"})
    said = b""
    while b"Password for" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, answer)
    with contextlib.suppress(OSError):  # Linux has that for the end of a terminal.
        while got := os.read(terminal, 1024):
            said += got
    os.close(terminal)
    return os.waitpid(process, 0)[1], said


@WITH_AN_AGENT_TOO
def test_git_asks_at_the_terminal(user: User) -> None:
    """Git asks at the terminal even if a worker without one does the work."""
    token = user.token()
    status, said = typing(user, token.encode() + b"\n")
    assert status == 0, said
    assert f"Password for 'hpss://token@127.0.0.1:{user.server.direct[1]}': ".encode() in said
    assert token.encode() not in said
    assert user.log() == ["get", "get", "store"]


@WITH_AN_AGENT_TOO
def test_an_interrupt_of_the_question_ends_the_command(user: User) -> None:
    user.token()
    status, said = typing(user, b"\x03")
    assert status != 0
    assert b"token" not in said.partition(b"Password for")[2].partition(b"':")[2]
    assert user.log() == ["get", "get"]
    if user.agent:
        zygote = zygote_of(user)
        wait_until(lambda: not workers(zygote))  # None waits for an answer.
