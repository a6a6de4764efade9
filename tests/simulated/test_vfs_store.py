"""client.vfs_transport, store.remote: a repository on the file-level verbs of a server, its trips counted."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import MAIN, Far, History, check_whole, push
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork
from smartserver.client.vfs_link import VfsLink
from smartserver.client.vfs_transport import VfsTransport
from smartserver.server.site import Site
from smartserver.store.repository import PackRepository

pytestmark = pytest.mark.unbanned("file-level calls are the baseline, which the bans are there to keep from the rest")

BUDGETS = tomllib.loads((Path(__file__).parent.parent / "budgets.toml").read_text(encoding="utf-8"))["vfs store"]
PATH = "project"
OTHER = b"refs/heads/other"


class Stored:
    """A repository of seven pushes on a server, and a history that goes on."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.history = History()
        self.line = self.history.line(20)
        joint.site = Site(joint.storage, allows_vfs=True)
        near = PackRepository(Far(joint.storage), PATH)
        push(near, self.history, self.line[:3], {MAIN: self.line[2]})
        for tip in self.line[3:9]:
            push(near, self.history, [tip], {MAIN: tip})

    def files(self) -> VfsTransport:
        """The files as a new process sees them, without a connection."""
        return VfsTransport(VfsLink(self.joint.client(), "", "vfs://simulated"))

    def repository(self, path: str = PATH) -> PackRepository:
        return PackRepository(self.files(), path)


@pytest.fixture
def stored(joint: Joint, network: SimulatedNetwork) -> Iterator[Stored]:
    stored = Stored(joint)
    network.take()
    yield stored
    check_whole(PackRepository(Far(joint.storage), PATH), stored.history)


def pull(stored: Stored, count: int) -> None:
    snapshot = stored.repository().snapshot()
    assert dict(snapshot.state.refs())
    last = snapshot.graph.count
    reader = snapshot.read_ranges(((last - count, last),))
    pieces = []
    while piece := reader.read(1 << 20):
        pieces.append(piece)
    assert b"".join(pieces) == stored.history.body(stored.line[9 - count : 9])


def push_to(name: bytes) -> Callable[[Stored], None]:
    def do(stored: Stored) -> None:
        tip = stored.line[9]
        push(stored.repository(), stored.history, [tip], {name: tip})
        assert stored.joint.refs(PATH)[name] == tip

    return do


def create(stored: Stored) -> None:
    push(stored.repository("new"), stored.history, stored.line[:3], {MAIN: stored.line[2]})
    assert stored.joint.refs("new") == {MAIN: stored.line[2]}


OPERATIONS: dict[str, Callable[[Stored], object]] = {
    "over VFS: open": lambda stored: stored.repository().snapshot(),
    "over VFS: push one revision": push_to(MAIN),
    "over VFS: push a new branch": push_to(OTHER),
    "over VFS: new repository": create,
    "over VFS: pull one revision": lambda stored: pull(stored, 1),
    "over VFS: clone": lambda stored: pull(stored, 9),
}


def test_every_operation_has_a_budget_and_a_case() -> None:
    assert sorted(OPERATIONS) == sorted(BUDGETS)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.max_round_trips(name)) for name in OPERATIONS])
def test_operation(stored: Stored, name: str) -> None:
    """The connection's handshake included."""
    OPERATIONS[name](stored)
    assert stored.joint.network.counts().connections == 1
