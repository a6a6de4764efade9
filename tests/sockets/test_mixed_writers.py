"""Two writers by SFTP, two by the file-level verbs and two by RPC on one repository at the same time.

No acknowledged change is lost or made twice. Writers that die are tried in `tests/faults/test_store_crash.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import History
from history_sources import HistorySource
from pushing import connected, push
from serving import Server, lanes
from sshd import Sshd

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import Medium
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import Outcome
from smartserver.server.access import invoking_user
from smartserver.server.same_process import SameProcess
from smartserver.server.site import Site
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.local import LocalTransport
from transports.registry import open_url
from transports.sftp import Line, SftpTransport
from transports.sftp_login import Account, log_in

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.unbanned("file-level calls are the baseline, which the bans are there to keep from the rest"),
]

PUSHES = 10
"""The number of pushes by each writer."""


def writing(store: Transport) -> Callable[[], Medium]:
    """Return a function that connects to a server of this process on files that lie elsewhere."""
    site = Site(store, tidies=False)
    return lambda: SameProcess(site, invoking_user("writer"))


def test_all_at_once(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    lines = {f"w{number}": History().line(PUSHES, name=f"w{number}") for number in range(6)}
    with Server(tmp_path / "root", "--allow-vfs") as server:

        def write(number: int) -> None:
            name = f"w{number}"
            history = History()
            account = Account(sshd.host, port=sshd.port, config=str(sshd.config))
            ways: list[Callable[[], Transport]] = [
                lambda: SftpTransport(Line(lambda: log_in(account)), str(tmp_path / "root"), "sftp"),
                lambda: open_url(server.url("").replace("hpss", "vfs")),
            ]
            with connected(server.port) as by_rpc:
                way = number // 2
                client = Client(writing(ways[way]())) if way < len(ways) else None
                remote = by_rpc if client is None else RemoteRepository(client, "p", Knowledge(None, name))
                for tip in history.line(PUSHES, name=name):
                    ref = f"refs/heads/{name}".encode()
                    assert push(remote, HistorySource(history), ref, tip).outcome is Outcome.DONE
                if client is not None:
                    client.close()

        with connected(server.port) as remote:
            push(remote, HistorySource(history := History()), b"refs/heads/first", history.line(1, name="first")[0])
        lanes(len(lines), write)
    repository = PackRepository(LocalTransport(tmp_path / "root"), "p")
    snapshot = repository.snapshot()
    refs = {name.decode(): value[0].id for name, value in snapshot.state.refs().items()}
    assert {name: refs[f"refs/heads/{name}"] for name in lines} == {name: line[-1] for name, line in lines.items()}
    there = [snapshot.revision(ordinal) for ordinal in range(sum(pack.segments for pack in snapshot.state.packs))]
    assert len(there) == len(set(there)), "a revision is there twice"
    assert {revision for line in lines.values() for revision in line} <= set(there), "acknowledged and not there"
    assert repository.verify().problems == ()
