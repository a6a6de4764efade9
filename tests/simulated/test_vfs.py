"""client.vfs_transport: the promises of a transport, its round trips, and lost answers, over a simulated link."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from simulated_joint import Joint
from transport_suite import TransportSuite

from netem.effects import Cut
from netem.link import Link
from netem.simulated import SimulatedNetwork
from smartserver.client.vfs_link import VfsLink
from smartserver.client.vfs_transport import VfsTransport
from smartserver.trace import flags
from smartserver.trace.tracing import Tracing
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.limits import MAX_FILE_CALLS
from transports import steps
from transports.base import EntryKind, Transport
from transports.errors import TransportError, TransportFailed

pytestmark = pytest.mark.unbanned("file-level calls are the baseline, which the bans are there to keep from the rest")

BUDGETS = tomllib.loads((Path(__file__).parent.parent / "budgets.toml").read_text(encoding="utf-8"))["vfs"]
LARGE = os.urandom(1 << 20)


def vfs(joint: Joint) -> VfsTransport:
    joint.site.allows_vfs = True
    return VfsTransport(VfsLink(joint.client(), "", "vfs://simulated"))


class TestSimulated(TransportSuite):
    @pytest.fixture
    def transport(self, joint: Joint) -> Iterator[Transport]:
        transport = vfs(joint)
        yield transport
        transport.close()


# -- round trips


@pytest.fixture
def held(joint: Joint, network: SimulatedNetwork) -> VfsTransport:
    """A transport with a connection, and a tree."""
    storage = joint.storage
    storage.make_directory("packs")
    storage.put("root", [b"root 1"])
    storage.put("packs/large", [LARGE])
    storage.put("packs/small", [b"small"])
    transport = vfs(joint)
    assert transport.exists("root")
    network.take()
    return transport


def read(transport: VfsTransport) -> None:
    root, large, gone = steps.Get("root"), steps.Get("packs/large"), steps.Get("packs/gone")
    some, names, there = (
        steps.ReadRanges("packs/large", [(5, 5), (0, 9)]),
        steps.ListDirectory("packs"),
        steps.GetStat("packs"),
    )
    transport.perform([root, large, gone, some, names, there])
    assert (root.content, large.content, gone.result) == (b"root 1", LARGE, None)
    assert (some.result, names.result) == ([LARGE[5:10], LARGE[:9]], ["large", "small"])
    assert there.result is not None
    assert there.result.kind is EntryKind.DIRECTORY


def change(transport: VfsTransport) -> None:
    changes = [
        steps.MakeDirectory("new"),
        steps.Put("new/a", LARGE),
        steps.Put("new/b", b"b"),
        steps.Rename("new/b", "new/c"),
        steps.Delete("root"),
    ]
    transport.perform([*changes, steps.SyncDirectory("new")])


def publish(transport: VfsTransport) -> None:
    read, gone = steps.GetPublished("packs/1"), steps.GetPublished("packs/1")
    transport.perform(
        [
            steps.Put("first", b"1"),
            steps.Publish("first", "packs/1"),
            read,
            steps.Withdraw("packs/1", "aside"),
            gone,
        ]
    )
    assert (read.result, gone.result) == (b"1", None)


def read_open(transport: VfsTransport) -> None:
    file = transport.open_read("packs/large")
    assert file.read_ranges([(at, 100) for at in range(0, len(LARGE), 1000)])[7] == LARGE[7000:7100]


def write(transport: VfsTransport) -> None:
    file = transport.create("new")
    for at in range(0, len(LARGE), 100_000):
        file.write(LARGE[at : at + 100_000])
    file.sync()
    file.close()


OPERATIONS: dict[str, Callable[[VfsTransport], None]] = {
    "steps that read": read,
    "steps that change": change,
    "a new file of 1 MB": lambda transport: transport.put("new", [LARGE[:9], LARGE[9:]]),
    "a file of 1 MB": lambda transport: _same(transport.get("packs/large"), LARGE),
    "ranges of a large file": lambda transport: transport.perform(
        [steps.ReadRanges("packs/large", [(9, 500_000)] * 9)]
    ),
    "publish a file, read it and withdraw it": publish,
    "a file opened, and ranges of it": read_open,
    "a file created, written piece by piece, and synced": write,
}


def _same(found: bytes, expected: bytes) -> None:
    assert found == expected


def test_every_operation_has_a_budget_and_a_case() -> None:
    assert sorted(OPERATIONS) == sorted(BUDGETS)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.max_round_trips(name)) for name in OPERATIONS])
def test_operation(held: VfsTransport, joint: Joint, network: SimulatedNetwork, name: str) -> None:
    OPERATIONS[name](held)
    assert network.counts().rounds == BUDGETS[name]
    if joint.storage.exists("new"):
        made = "new/a" if joint.storage.stat("new").kind is EntryKind.DIRECTORY else "new"
        assert joint.storage.get(made) == LARGE
    assert joint.storage.get("packs/large") == LARGE


def test_what_was_written_is_sent_when_somebody_asks_about_it(held: VfsTransport, network: SimulatedNetwork) -> None:
    """And not when they ask about something else."""
    file = held.create("packs/new")
    file.write(b"one ")
    network.take()
    assert held.get("root") == b"root 1"
    assert network.take().rounds == 1
    assert held.get("packs/new") == b"one "
    assert network.take().rounds == 2
    file.write(b"two")
    held.rename("packs", "moved")
    assert held.get("moved/new") == b"one two"
    file.close()


def test_more_steps_than_a_request_takes(held: VfsTransport, network: SimulatedNetwork) -> None:
    count = MAX_FILE_CALLS + 5
    reads = [steps.ReadRanges("packs/small", [(0, 5)]) for _ in range(count)]
    held.perform(reads)
    assert network.take().rounds == 2
    assert all(step.result == [b"small"] for step in reads)
    file = held.open_read("root")
    assert file.read_ranges([(at % 6, 1) for at in range(10_000)]) == [b"root 1"[at % 6 :][:1] for at in range(10_000)]


# -- lost connections


def lost(joint: Joint, link: Link) -> VfsTransport:
    """Its first connection is cut."""
    joint.network.links.append(link)
    return vfs(joint)


def test_a_change_whose_answer_was_lost_is_never_made_twice() -> None:
    """Cut at each byte of the answer: it was made once, or nobody says that it was not."""
    known: list[int] = []
    for at in range(0, 60, 3):
        joint = Joint(SimulatedNetwork(Link(1.0)))
        transport = lost(joint, Link(1.0, down=[Cut(at)]))
        with contextlib.suppress(TransportFailed):
            transport.put("new", [b"n"])
            known.append(at)
        assert joint.storage.get("new") == b"n"
        assert joint.network.counts().connections == 1, "it was sent again"
    assert known
    assert known[0] > 0


def test_a_request_that_was_cut_changes_nothing() -> None:
    """Cut at each byte of it, small and large: the calls whose content has come wait for the others."""
    for at in [*range(0, 200, 9), 70_000, 200_000, 1_000_000]:
        joint = Joint(SimulatedNetwork(Link(1.0)))
        transport = lost(joint, Link(1.0, up=[Cut(at)]))
        with pytest.raises(TransportFailed, match="it is unknown whether the change was made"):
            transport.perform([steps.MakeDirectory("new"), steps.Put("new/a", LARGE), steps.Rename("new/a", "new/b")])
        assert joint.tree() == []


def test_nobody_there() -> None:
    joint = Joint(SimulatedNetwork(Link(1.0)))
    transport = vfs(joint)
    joint.up = False
    with pytest.raises(TransportFailed, match=r"^cannot connect to the simulated server: "):
        transport.get("file")
    with pytest.raises(TransportFailed, match="nobody listens"):
        transport.put("file", [b"x"])


def test_what_could_not_be_sent_is_not_sent_later() -> None:
    """A sync that failed is never tried again: the bytes may be there, or be gone."""
    joint = Joint(SimulatedNetwork(Link(1.0)))
    transport = vfs(joint)
    file = transport.create("file")
    file.write(b"one")
    joint.up = False
    transport.close()
    with pytest.raises(TransportError):
        file.sync()
    joint.up = True
    for again in (file.sync, lambda: file.write(b"two")):
        with pytest.raises(TransportFailed, match="could not be sent"):
            again()
    file.close()
    assert transport.get("file") == b""


def test_the_trace_shows_where_they_are_made(joint: Joint) -> None:
    """And of others nothing."""
    joint.site.allows_vfs = True
    said: list[str] = []
    tracing = Tracing(flags.read(["hpssvfs"]), said.append, "test", {})
    client = joint.client(tracing.observers)
    VfsTransport(VfsLink(client, "", "vfs://simulated")).make_directory("a")
    client.call(server_ping, PingRequest())
    vfs_call, ping = said
    assert vfs_call.startswith("hpss: mkdir(a) on /: ok, ")
    where = vfs_call.splitlines()[1]
    assert where.startswith("    called from tests/simulated/test_vfs.py:")
    assert " in test_the_trace_shows_where_they_are_made" in where
    assert len(ping.splitlines()) == 1
