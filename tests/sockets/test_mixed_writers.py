"""Two writers by SFTP, two by the file-level verbs and two by RPC at once on one repository, some of them killed.

Nothing that was acknowledged is lost, nothing is there twice; and who finds a dead writer's lock is told whose it is.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from builders import History
from click.testing import CliRunner
from mixed_writer import connected, line_of
from pushing import NEW, Source
from serving import PATIENCE, Server, lanes
from sshd import Sshd

from smartserver.cli.main import group
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import RefUpdate
from smartserver.store import swap
from smartserver.store.repository import PackRepository
from transports.errors import Locked, NoSuchFile
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets


class Load(NamedTuple):
    """What is pushed at once."""

    ways: tuple[str, ...]
    pushes: int
    """Of each."""
    size: int
    """Bytes of each push, about."""
    kills: dict[int, tuple[int, ...]]
    """Which writer is killed, and after how many pushes of its were acknowledged."""


SMALL = Load(
    ("sftp", "sftp", "vfs", "vfs", "rpc", "rpc"),
    20,
    0,
    {0: (7,), 2: (3, 11), 4: (9,)},
)

LARGE = Load(("sftp", "vfs", "rpc"), 3, 1 << 20, {0: (1,), 1: (2,)})
"""Over a link each goes with the lock that it takes."""

TESTS = Path(__file__).parents[1]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root", "--allow-vfs", "--folder-locks") as server:
        yield server


@dataclass
class Shared:
    """The repository, as each way reaches it."""

    server: Server
    sshd: Sshd
    root: Path
    load: Load
    breaking: threading.Lock = field(default_factory=threading.Lock)

    def url(self, way: str) -> str:
        url = self.server.url("p")
        return f"sftp://{self.sshd.host}:{self.sshd.port}{self.root}/p" if way == "sftp" else url.replace("hpss", way)

    def here(self) -> PackRepository:
        return PackRepository(LocalTransport(self.root), "p")

    def release(self, pid: int) -> None:
        """As an administrator does it who knows that a process is dead."""
        with self.breaking:
            holder = self.here().lock_holder()
            if holder is not None and holder.pid == pid:
                with contextlib.suppress(NoSuchFile):
                    self.here().break_lock(holder)

    def write(self, number: int) -> int:
        """Push all, killed now and then; how many were acknowledged."""
        (ways, pushes, size, kills), at = self.load, 0
        way = ways[number]
        url = self.server.url("p") if way == "rpc" else self.url(way)
        for stop in (*kills.get(number, ()), pushes):
            command = [sys.executable, str(TESTS / "sockets" / "mixed_writer.py"), way, url, f"w{number}", str(at)]
            process = subprocess.Popen(
                [*command, str(pushes), str(size), str(self.sshd.config)],
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
                if at < pushes:
                    process.kill()
            self.release(process.pid)
        return at


@pytest.mark.parametrize("load", [SMALL, LARGE], ids=["small", "large"])
def test_all_at_once(server: Server, sshd: Sshd, tmp_path: Path, load: Load) -> None:
    shared = Shared(server, sshd, tmp_path / "root", load)
    count = len(load.ways)
    with connected("rpc", server.url("p"), "") as remote:
        push(remote, "first", 1)
    assert lanes(count, shared.write) == [load.pushes] * count
    repository = shared.here()
    snapshot = repository.snapshot()
    refs = {name.decode(): value[0].id for name, value in snapshot.state.refs().items()}
    names = [f"w{number}" for number in range(count)]
    expected = {f"refs/heads/{name}": line_of(History(), name, load.pushes, load.size) for name in names}
    assert {name: refs[name] for name in expected} == {name: line[-1] for name, line in expected.items()}
    there = [snapshot.revision(ordinal) for ordinal in range(sum(pack.segments for pack in snapshot.state.packs))]
    assert len(there) == len(set(there)), "a revision is there twice"
    assert {revision for line in expected.values() for revision in line} <= set(there), "acknowledged and not there"
    assert repository.verify().problems == ()


def push(remote: RemoteRepository, name: str, count: int) -> None:
    history = History()
    line = history.line(count, name=name)
    remote.push(PushRequest([RefUpdate(f"refs/heads/{name}".encode(), line[-1])], Source(history), NEW))


HOLD = """
import sys
from mixed_writer import store
from smartserver.store.swap import RootFile
with RootFile(store("sftp", sys.argv[1], sys.argv[2]), "p").swapping():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_writer_that_was_killed_while_it_held_the_lock(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is told who that is, nothing is lost, and once the lock is broken it goes on."""
    monkeypatch.setattr(swap, "LOCK_WAIT", 0.2)
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "config").write_text(sshd.config.read_text())
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    above = f"sftp://{sshd.host}:{sshd.port}{tmp_path}"
    with connected("sftp", f"{above}/p", str(sshd.config)) as remote:
        push(remote, "first", 1)
        holding = subprocess.Popen(
            [sys.executable, "-c", HOLD, above, str(sshd.config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "sockets")])},
        )
        with holding:
            assert holding.stdout is not None
            assert holding.stdout.readline() == b"held\n"
            holding.kill()
            holding.wait(PATIENCE)
        with pytest.raises(Locked) as caught:
            push(remote, "second", 2)
        assert f"{os.uname().nodename}" in str(caught.value)
        assert str(holding.pid) in str(caught.value)
        broken = CliRunner().invoke(group, ["break-lock", "--force", f"hpss+{above}/p"])
        assert broken.exit_code == 0, broken.exception
        push(remote, "second", 2)
    repository = PackRepository(LocalTransport(tmp_path), "p")
    assert sorted(repository.snapshot().state.refs()) == [b"refs/heads/first", b"refs/heads/second"]
    assert repository.verify().problems == ()
