"""plugins.mercurial.server, plugins.mercurial.credentials: each way from hg to a server, with and without the agent,
and from a command server of Mercurial's."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_rules import OPEN
from agents import of_its_own
from git_sides import Served, environment
from hg_histories import verify
from hg_sides import HgSide, server_heads
from needs import needs
from secure_sides import Secure
from sshd import Sshd

from smartserver.agent.lending import ask
from smartserver.agent.messages import Status, decode_held

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

FRESH = "1 round trip on a fresh connection"
SHOWN = "--config hpss.debug=hpss"

START = "hg init a; a commit one; a commit two"

OF_ITS_OWN = needs("hg of this environment")
"""Marks tests that start a process of ours with the Python of hg."""


def exchange(side: HgSide, **variables: str) -> list[str]:
    """Push, clone, push and pull, until both users have the same; return the output of each command."""
    side.prepare(START)
    said = []
    for step in (
        f'a hg push {SHOWN} "$URL"',
        f'as b hg clone {SHOWN} "$URL" b',
        f'a commit three; a hg push {SHOWN} "$URL"',
        f'b hg pull {SHOWN} "$URL"',
        f'b hg incoming {SHOWN} "$URL" || true',
    ):
        said.append(side.prepare(step, **variables).said)
    has = side.has()
    assert len(has["a"]) == 3
    assert has["a"] == has["b"]
    assert verify(side.folder / "b") == (0, "")
    return said


def use(side: HgSide, config: str) -> None:
    """Add to the configuration of all users."""
    with open(side.folder / ".hgrc", "a") as hgrc:
        hgrc.write(config)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    made = Secure(tmp_path / "server", OPEN)
    yield made
    made.server.close()


def test_tls_with_a_token_of_auth(secure: Secure, tmp_path: Path) -> None:
    side = HgSide(tmp_path / "ours", secure.url("project"))
    use(side, f"[auth]\ncode.prefix = {secure.above}\ncode.password = {secure.token()}\n")
    *first, a_again, b_again, b_third = exchange(side)
    for said in first:
        assert "2 round trips on a fresh connection" in said, "the server asks each user for a token once"
    for said in (a_again, b_again, b_third):
        assert FRESH in said


@OF_ITS_OWN
def test_the_second_command_has_the_connection_of_the_first(served: Served, tmp_path: Path) -> None:
    side = HgSide(tmp_path / "ours", served.url("hg-agent"), served)
    side.prepare(START)
    with of_its_own() as agent:
        first = side.run('a hg push "$URL"', **agent)
        assert (first.status, first.counts.rounds, first.counts.connections) == (0, 2, 1), first
        for step in ('as b hg clone "$URL" b', 'a commit x; a hg push "$URL"', 'b hg pull "$URL"', 'a hg id "$URL"'):
            done = side.run(step, **agent)
            assert (done.status, done.counts.rounds, done.counts.connections) == (0, 1, 0), (step, done)
        assert len(ask(Status(), decode_held, agent)[0].lines) == 1
    assert side.has()["a"] == side.has()["b"]


@OF_ITS_OWN
def test_sftp(sshd: Sshd, tmp_path: Path) -> None:
    """The host has no smartserver."""
    served = tmp_path / "served"
    served.mkdir()
    side = HgSide(tmp_path / "ours", f"hpss+sftp://127.0.0.1:{sshd.port}{served}/project")
    (side.folder / ".ssh").mkdir()
    shutil.copy(sshd.config, side.folder / ".ssh" / "config")
    for said in exchange(side):
        assert "1 round trip" in said


class CommandServer:
    """An `hg` process in which one user runs all commands."""

    def __init__(self, side: HgSide, user: str) -> None:
        self.folder = side.folder / user
        variables = {"HGRCPATH": str(side.folder / ".hgrc"), "XDG_CACHE_HOME": str(side.folder / ".cache" / user)}
        self._process = subprocess.Popen(
            [str(Path(sys.executable).parent / "hg"), "serve", "--cmdserver", "pipe"],
            cwd=side.folder,
            env={**environment(side.folder), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._read()

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command in the user's repository, and return its status and output."""
        assert self._process.stdin is not None
        given = "\0".join(["-R", str(self.folder), *words]).encode()
        self._process.stdin.write(b"runcommand\n" + struct.pack(">I", len(given)) + given)
        self._process.stdin.flush()
        said = b""
        while True:
            channel, content = self._read()
            if channel == b"r":
                return struct.unpack(">i", content)[0], said.decode("utf-8", "replace")
            said += content

    def _read(self) -> tuple[bytes, bytes]:
        assert self._process.stdout is not None
        head = self._process.stdout.read(5)
        channel, length = head[:1], struct.unpack(">I", head[1:])[0]
        return channel, self._process.stdout.read(length)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(30)


def test_a_command_server_keeps_nothing(served: Served, tmp_path: Path) -> None:
    """Between two commands another user pushes, and the repository is deleted and recreated."""
    side = HgSide(tmp_path / "ours", served.url("hg-cmdserver"), served)
    exchange(side)
    server = CommandServer(side, "b")
    try:
        assert server.run("pull", side.url)[0] == 0
        side.prepare('a commit four; a hg push -q "$URL"')
        served.proxy.take()
        status, said = server.run("pull", side.url)
        counts = served.proxy.take()
        assert (status, counts.rounds, counts.connections) == (0, 2, 1), said
        assert "added 1 changesets" in said
        side.prepare('smartserver delete --yes "$URL"')
        status, said = server.run("incoming", side.url)
        assert (status, said.splitlines()[-1]) == (255, f"abort: repository {side.url} not found")
        side.prepare('hg init "$URL"; a hg push -q -r 0 "$URL"')
        status, said = server.run("push", side.url)
        assert status == 0, said
        assert server_heads(served, "hg-cmdserver") == {"default": [side.run("b hg log -r tip -T '{node}'").out]}
    finally:
        server.close()
