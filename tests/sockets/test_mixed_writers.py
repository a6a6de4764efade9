"""Two writers by SFTP, two by the file-level verbs and two by RPC on one repository at the same time, some of them
killed.

No acknowledged change is lost or made twice, and nobody waits for a dead writer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import History
from history_sources import HistorySource
from mixed_writer import connected
from pushing import push
from serving import Server, lanes
from sshd import Sshd

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets


WAYS = ("sftp", "sftp", "vfs", "vfs", "rpc", "rpc")
"""The way of each writer."""
PUSHES = 10
"""The number of pushes by each writer."""
KILLS = {0: (4,), 2: (2, 6), 4: (5,)}
"""By writer: the numbers of acknowledged pushes after which it is killed."""

TESTS = Path(__file__).parents[1]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root", "--allow-vfs") as server:
        yield server


@dataclass
class Shared:
    """The repository, as each way reaches it."""

    server: Server
    sshd: Sshd
    root: Path

    def url(self, way: str) -> str:
        url = self.server.url("p")
        return f"sftp://{self.sshd.host}:{self.sshd.port}{self.root}/p" if way == "sftp" else url.replace("hpss", way)

    def here(self) -> PackRepository:
        return PackRepository(LocalTransport(self.root), "p")

    def write(self, number: int) -> int:
        """Make all pushes, killed now and then, and return the number of acknowledged ones."""
        way, at = WAYS[number], 0
        url = self.server.url("p") if way == "rpc" else self.url(way)
        for stop in (*KILLS.get(number, ()), PUSHES):
            command = [sys.executable, str(TESTS / "sockets" / "mixed_writer.py"), way, url, f"w{number}", str(at)]
            process = subprocess.Popen(
                [*command, str(PUSHES), str(self.sshd.config)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "sockets")])},
            )
            assert process.stdout is not None
            with process:
                while at < stop:
                    said = process.stdout.readline()
                    assert said == f"{at}\n", (way, said, process.stderr and process.stderr.read())
                    at += 1
                if at < PUSHES:
                    process.kill()
        return at


def test_all_at_once(server: Server, sshd: Sshd, tmp_path: Path) -> None:
    shared = Shared(server, sshd, tmp_path / "root")
    count = len(WAYS)
    with connected("rpc", server.url("p"), "") as remote:
        push(remote, HistorySource(history := History()), b"refs/heads/first", history.line(1, name="first")[0])
    assert lanes(count, shared.write) == [PUSHES] * count
    repository = shared.here()
    snapshot = repository.snapshot()
    refs = {name.decode(): value[0].id for name, value in snapshot.state.refs().items()}
    names = [f"w{number}" for number in range(count)]
    expected = {f"refs/heads/{name}": History().line(PUSHES, name=name) for name in names}
    assert {name: refs[name] for name in expected} == {name: line[-1] for name, line in expected.items()}
    there = [snapshot.revision(ordinal) for ordinal in range(sum(pack.segments for pack in snapshot.state.packs))]
    assert len(there) == len(set(there)), "a revision is there twice"
    assert {revision for line in expected.values() for revision in line} <= set(there), "acknowledged and not there"
    assert repository.verify().problems == ()
