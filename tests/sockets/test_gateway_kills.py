"""smartserver.gateway: stock git, dulwich and our own client push to one repository while its server is killed."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from pathlib import Path

import pytest
from dulwich import porcelain
from dulwich.errors import GitProtocolError, HangupException
from gateways import GatewayServer, Git, new_repository
from urllib3.exceptions import HTTPError

pytestmark = [pytest.mark.sockets, pytest.mark.interop, pytest.mark.long]

PUSHES = 12
"""The number of pushes of each user."""
PATIENCE = 120
"""Seconds for one push, with the server's restarts."""


class User(threading.Thread):
    """A user that pushes commits to a branch of its own, each until it is acknowledged."""

    def __init__(self, git: Git, url: str, name: str) -> None:
        super().__init__(name=name)
        self.git, self.url = git, url
        self.acknowledged: list[str] = []
        self.wrong: BaseException | None = None

    def run(self) -> None:
        try:
            for n in range(PUSHES):
                commit = self.git.commit(f"{self.name}{n}", f"{random.random()}" * 1000)
                end = time.monotonic() + PATIENCE
                while not self.push():
                    assert time.monotonic() < end, f"{commit} was not taken in {PATIENCE} s"
                    time.sleep(0.05)
                self.acknowledged.append(commit)
        except BaseException as wrong:
            self.wrong = wrong

    def push(self) -> bool:
        """Push once, and tell whether the push was acknowledged."""
        command = ["git", "push", "-q", self.url, f"HEAD:refs/heads/{self.name}"]
        done = subprocess.run(
            command, cwd=self.git.folder, env=self.git.environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=120, check=False,
        )  # fmt: skip
        return done.returncode == 0


class DulwichUser(User):
    """A user with another implementation of git."""

    def push(self) -> bool:
        with contextlib.suppress(
            GitProtocolError, HangupException, HTTPError, porcelain.Error, OSError, AssertionError, KeyError
        ):
            refspec = f"HEAD:refs/heads/{self.name}".encode()
            with open("/dev/null", "wb") as nothing:
                done = porcelain.push(str(self.git.folder), self.url, refspec, outstream=nothing, errstream=nothing)
            return not any((done.ref_status or {}).values())
        return False


def test_everything_that_was_acknowledged_is_there(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    with GatewayServer(tmp_path) as server:
        first = new_repository(tmp_path / "first")
        first("push", "-q", server.url(), "main")
        users: list[User] = []
        for name, kind, url in (
            ("stock", User, server.url()),
            ("other", User, server.url()),
            ("dulwich", DulwichUser, server.url()),
            ("ours", User, server.ours()),
        ):
            git = first.at(name)
            first("clone", "-q", server.url(), str(git.folder))
            users.append(kind(git, url, name))
        for user in users:
            user.start()
        kills = 0
        while any(user.is_alive() for user in users):
            users[0].join(chance.uniform(0.3, 2))
            if kills < 8:
                server.stop()
                server.start()
                kills += 1
        assert kills
        for user in users:
            assert user.wrong is None, (user.name, user.wrong, server.log.read_text()[-3000:])
        check = first.at("check")
        first("clone", "-q", "--mirror", server.url(), str(check.folder))
        check("fsck", "--strict")
        by_ours = first("ls-remote", server.ours())
        for user in users:
            assert set(user.acknowledged) <= set(check("rev-list", user.name).split())
            assert f"{user.acknowledged[-1]}\trefs/heads/{user.name}" in by_ours
