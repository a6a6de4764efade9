"""smartserver.gateway.ssh: stock git over a real OpenSSH server whose forced command is `smartserver serve --stdio`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_rules import ADMIN
from gateways import Git, new_repository
from scripts import script
from sshd import Sshd

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


class Host:
    """A machine that git reaches by ssh."""

    def __init__(self, sshd: Sshd, folder: Path) -> None:
        self._sshd, self._folder = sshd, folder
        (folder / "root").mkdir()
        (folder / "access.toml").write_text(ADMIN)
        program = [sys.executable, "-m", "smartserver.cli.main", "serve", str(folder / "root"), "--stdio"]
        options = ["--access", str(folder / "access.toml"), "--user", "anna"]
        options += ["--cache-dir", str(folder / "cache"), "--log", str(folder / "log")]
        command = shlex.join([*program, *options])
        key = (sshd.folder / "user_key.pub").read_text()
        (sshd.folder / "authorized_keys").write_text(f'restrict,command="{command}" {key}')

    @property
    def url(self) -> str:
        return f"ssh://{self._sshd.host}:{self._sshd.port}/project"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "ssh").mkdir()
    with Sshd(tmp_path / "ssh", session={"PYTHONPATH": ":".join(sys.path)}) as sshd:
        yield Host(sshd, tmp_path)


@pytest.fixture
def git(host: Host, tmp_path: Path) -> Git:
    return new_repository(tmp_path / "work", GIT_SSH_COMMAND=f"ssh -F {tmp_path / 'ssh' / 'config'}")


def test_push_clone_fetch_and_delete(host: Host, git: Git) -> None:
    git("tag", "-a", "-m", "a tag", "v1")
    git("push", "-q", host.url, "main", "main:other", "v1")
    clone = git.at("clone")
    git("clone", "-q", host.url, str(clone.folder))
    two = git.commit("two")
    git("push", "-q", host.url, "main", ":other")
    clone("fetch", "-q", "--prune")
    assert clone("rev-parse", "origin/main").strip() == two
    assert "other" not in clone("branch", "-r")
    git("commit", "-q", "--amend", "-m", "two again")
    git("push", "-q", host.url, "+main")
    assert "user=anna" in host.log
    assert "via=ssh" in host.log


def test_receivers_are_told(host: Host, git: Git, tmp_path: Path) -> None:
    """Before the process ends: there is no other that would."""
    told = tmp_path / "told"
    receiver = script(tmp_path / "receiver", f"sleep 1\ncat >> {told}")
    (tmp_path / "access.toml").write_text(f'{ADMIN}\n[[hooks]]\npath = "**"\nafter = ["{receiver}"]\n')
    git("push", "-q", host.url, "main")
    assert git("rev-parse", "main").strip() in told.read_text()
    two = git.commit("two")
    git("push", "-q", "-o", "ci.skip", "-o", "two words", host.url, "main")
    _, message = map(json.loads, told.read_text().splitlines())
    assert message["changes"][0]["new"] == [two]
    assert message["options"] == ["ci.skip", "two words"]


def test_a_large_push(host: Host, git: Git) -> None:
    """One that the pipe does not hold, thin and with deltas."""
    for n in range(3):
        git.commit("large", "".join(f"{n} {line * line}\n" for line in range(100_000)))
        git("push", "-q", host.url, "main")
    clone = git.at("clone")
    git("clone", "-q", host.url, str(clone.folder))
    assert clone("rev-parse", "HEAD") == git("rev-parse", "HEAD")
