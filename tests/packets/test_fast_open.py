"""client.media.tcp, server.tcp: a push whose request goes with the handshake, in whole round trips and by the clock."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netem.link import Link
from netem.packets.network import CLIENT, Packets
from netem.run import Crossing, RunResult

pytestmark = [pytest.mark.packets, pytest.mark.interop]

Start = Callable[..., Packets]
SOON = 0.004
RTTS = (0.2, 0.7)
"""RTTs whose difference tells round trips; both are long beside what a busy machine is late by, and shorter than the
second after which the kernel sends a handshake again."""
TRIES = 5
"""Other work of the machine makes a push longer, and never shorter: the shortest counts."""


class Stage:
    """A server across a link, and a repository of commits to push to it."""

    def __init__(self, folder: Path, crossing: Crossing) -> None:
        self.crossing = crossing
        self.network = crossing.network
        self._folder = folder / "source"
        self._git("init", "--quiet", "-b", "main", str(self._folder))
        self._count = 0

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], check=True)

    def push(
        self,
        *variables: str,
        url: str = "hpss://{server}/project",
        fast_open: bool = True,
        check: bool = True,
    ) -> RunResult:
        """Push a commit, with a connection of its own."""
        self._count += 1
        git = ["-C", str(self._folder)]
        self._git(*git, "commit", "--quiet", "--allow-empty", "-m", f"number {self._count}")
        word = f"SMARTSERVER_FAST_OPEN={fast_open:d}"
        pushed = self.crossing.run(["env", word, *variables, "git", *git, "push", "--quiet", url, "main"])
        assert not check or pushed.status == 0
        return pushed


@pytest.fixture
def stage(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """The repository is there and the system of the client has met the server: it has a cookie of it."""
    start(Link(SOON)).close()  # or skip
    for name, value in {
        "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    (tmp_path / "served").mkdir()
    server = f"smartserver serve {tmp_path / 'served'} --listen {{server}}:4155 --anonymous write --fast-open"
    with Crossing(Packets(Link(SOON)), [server], [("net.ipv4.tcp_fastopen", "3")]) as crossing:
        made = Stage(tmp_path, crossing)
        for _ in range(2):
            made.push()
        yield made


@pytest.mark.parametrize(("fast_open", "rounds"), [(False, 2), (True, 1)])
def test_round_trips_of_a_push_on_a_fresh_connection(stage: Stage, fast_open: bool, rounds: int) -> None:
    shortest = dict.fromkeys(RTTS, math.inf)
    for _ in range(TRIES):
        for rtt in RTTS:
            stage.network.change(Link(rtt))
            pushed = stage.push(fast_open=fast_open)
            assert (pushed.counts.connections, pushed.counts.rounds) == (1, rounds)
            assert pushed.counts.rounds_without_handshake == 1
            assert pushed.seconds >= rounds * rtt
            shortest[rtt] = min(shortest[rtt], pushed.seconds)
        found = round((shortest[RTTS[1]] - shortest[RTTS[0]]) / (RTTS[1] - RTTS[0]))
        if found == rounds:
            break
    assert found == rounds


def test_without_leave_it_is_a_handshake_as_ever(stage: Stage) -> None:
    stage.network.setting("net.ipv4.tcp_fastopen", "0", side=CLIENT)
    assert (stage.push().counts.rounds, stage.push().counts.handshake_rounds) == (2, 1)


def test_a_server_that_may_not_says_so_at_the_start(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the system's default only clients may."""
    start(Link(SOON)).close()  # or skip
    server = f"{sys.executable} -m smartserver.cli.main serve {tmp_path} --listen {{server}}:4155 --fast-open"
    with Crossing(Packets(Link(SOON)), [server], [("net.ipv4.tcp_fastopen", "1")]) as crossing:
        assert crossing.run(["smartserver", "list", "hpss://{server}/"]).status == 0  # It answers: it has said all.
        said = capfd.readouterr().err.splitlines()
    why = "this system does not let servers have it: set net.ipv4.tcp_fastopen to 3 (it is 1)"
    assert said[0] == f"--fast-open has no effect: {why}"


def test_another_address_is_tried_with_what_the_first_one_did_not_take(stage: Stage, tmp_path: Path) -> None:
    """The cookie is of a whole machine: the request goes with the handshake to a port of it where nobody listens."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import socket\n"
        "found = socket.getaddrinfo\n"
        "def two(host, port, *rest, **more):\n"
        "    return [each for number in (4156, port) for each in found(host, number, *rest, **more)]\n"
        "socket.getaddrinfo = two\n"
    )
    assert stage.push(f"PYTHONPATH={tmp_path / 'site'}").counts.connections == 2


def test_a_server_that_is_gone_is_said_to_be(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    """A change that was sent may have been read, as far as the client can know: nobody is told that it was not made."""
    gone = "hpss://{server}:4156/project"
    place = f"cannot connect to {stage.network.server_address}:4156: Connection refused"
    capfd.readouterr()
    assert stage.crossing.run(["env", "SMARTSERVER_FAST_OPEN=1", "git", "ls-remote", gone]).status
    assert capfd.readouterr().err.splitlines() == [f"fatal: hpss: {place}"]
    assert stage.push(url=gone, check=False).status
    said = capfd.readouterr().err
    assert place in said
    assert "unknown" in said
