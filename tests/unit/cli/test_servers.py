"""cli.servers: a folder of its own, environments, and servers that start and stop."""

from __future__ import annotations

import errno
import io
import os
import shutil
import socket
from pathlib import Path

import pytest

from smartserver.cli import servers
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import HOST, Workspace, attempt, free_port, run, until_it_listens

pytestmark = pytest.mark.usefixtures("temporary")


def test_an_environment_has_nothing_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("SMARTSERVER_DEBUG", "hpss")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with Workspace("test") as work:
        found = work.environment("one", {"core.abbrev": "9", "gc.auto": "0"})
        other = work.environment("two")
        assert run(["git", "config", "core.abbrev"], None, found) == "9\n"
        assert run(["git", "config", "gc.auto"], None, found) == "0\n"
        assert attempt(["git", "config", "core.abbrev"], None, other).returncode == 1
    assert "GIT_DIR" not in found
    assert "SMARTSERVER_DEBUG" not in found
    assert "PYTHONDONTWRITEBYTECODE" not in found, "what runs from a checkout is compiled once, as what is installed"
    assert found["XDG_CACHE_HOME"] != other["XDG_CACHE_HOME"]


@pytest.mark.sockets
@pytest.mark.interop
def test_servers_listen_while_the_workspace_is_open_and_leave_nothing(temporary: Path) -> None:
    with Workspace("test") as work:
        ours, git = work.start_ours(), work.start_git_daemon("empty")
        assert git is not None, "`git daemon` is not installed"
        ports = [ours.port, git.port]
        environment = work.environment("user")
        assert run(["git", "ls-remote", git.url("empty")], None, environment) == ""
        assert "no repository" in attempt(["git", "ls-remote", ours.url("none")], None, environment).stderr
        assert list(temporary.iterdir())
    assert list(temporary.iterdir()) == []
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port), 1)


@pytest.mark.sockets
def test_a_server_that_does_not_start_says_why(temporary: Path) -> None:
    with pytest.raises(CommandError, match=r"did not start: .*is not a folder"), Workspace("test") as work:
        work.serve(["smartserver", "serve", str(work.folder / "none")], free_port())
    assert list(temporary.iterdir()) == []


def test_a_server_that_never_listens_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "START_WITHIN", 0.0)
    with pytest.raises(CommandError, match=r"^one of two did not start: still thinking$"):
        until_it_listens(lambda: False, lambda: False, "one of two", io.BytesIO(b"still thinking\n"))


def test_the_folder_is_removed_while_somebody_still_writes_in_it(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [3]

    def remove(folder: Path) -> None:
        rmtree(folder)
        if left[0]:
            left[0] -= 1
            (folder / "new").mkdir(parents=True)
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(folder))

    rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", remove)
    with Workspace("test") as work:
        (work.folder / "file").touch()
    assert list(temporary.iterdir()) == []
    left[0] = 1000
    monkeypatch.setattr(servers, "WRITING_FOR", 0.0)
    with pytest.raises(OSError, match="not empty"), Workspace("test"):
        pass


def test_without_git_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="git is not on PATH"), Workspace("test"):
        pass


def test_a_command_that_fails_is_named() -> None:
    with pytest.raises(CommandError, match="git rev-parse --verify nothing: status 128: fatal"):
        run(["git", "rev-parse", "--verify", "nothing"], None, os.environ)
