"""The agent holds a connection that died without a word: after a sleep it is not lent; else the next push finds out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import Times, keeping, of_its_own
from serving import Server, User, server_refs, write_history

from netem.effects import Blackhole
from netem.link import Link
from netem.proxy import Proxy
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

RTT = 0.002
MAIN = "refs/heads/main"
HOUR = 3600.0
GONE = Blackhole()


class Laptop:
    """A user with a repository and an agent whose clocks are the test's, a link, and a server at its other end."""

    def __init__(self, folder: Path, agent: dict[str, str], times: Times) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.times = times
        self.server = Server(self.root)
        self.proxy = Proxy(RTT, ("127.0.0.1", self.server.port))
        self.proxy.start()
        self.user = User(folder / "user")
        self.user.environment |= agent | {"SMARTSERVER_DEBUG": "hpss"}
        self.commits = write_history(self.user, "w", 3, seed="laptop", size=2_000)
        assert self.push(self.commits[0]) == (1, 1)
        assert self.push(self.commits[1]) == (0, 1)

    def push(self, commit: str) -> tuple[int, int]:
        """The connections that a push made and the requests that it sent, which works."""
        url = f"hpss://127.0.0.1:{self.proxy.port}/p"
        said = self.user.git("push", url, f"{commit}:{MAIN}", folder="w").worked().err
        assert server_refs(self.root, "p") == {MAIN: commit}
        return said.count("fresh connection"), int(re.findall(r"(\d+) calls? ", said)[0])

    def changes(self) -> int:
        """How many changes the server's log has."""
        return len(PackRepository(LocalTransport(self.root), "p").snapshot().state.history)

    def close(self) -> None:
        self.proxy.close()
        self.server.kill()


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    times = Times()
    with of_its_own() as agent, keeping(agent, times):
        made = Laptop(tmp_path, agent, times)
        yield made
        made.close()


def test_after_an_hours_sleep_no_connection_is_lent(laptop: Laptop) -> None:
    """Nor is it tried: one request goes over a new one."""
    before = laptop.changes()
    laptop.proxy.change_open(Link(RTT, up=[GONE], down=[GONE]))
    laptop.times.slept += HOUR
    assert laptop.push(laptop.commits[2]) == (1, 1)
    assert laptop.changes() == before + 1


@pytest.mark.parametrize("arrives", [False, True], ids=["the request is lost", "the answer is lost"])
def test_one_that_died_while_the_clocks_stood_still_is_found_out(laptop: Laptop, arrives: bool) -> None:
    """A virtual machine that was paused: the request is repeated, and the server makes the change once. How long that
    takes is in `test_held_connections`, by a clock that is the test's."""
    before = laptop.changes()
    laptop.proxy.change_open(Link(RTT, up=[] if arrives else [GONE], down=[GONE]))
    assert laptop.push(laptop.commits[2]) == (1, 2)
    assert laptop.changes() == before + 1
