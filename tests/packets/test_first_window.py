"""client.vfs_transport, client.media.tcp: what fits into the first window of real TCP, ten segments, takes one round
trip by the clock and not only by the count of messages; one byte more takes two."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netem.link import Link
from netem.packets.network import Packets
from netem.run import Crossing
from netem.tcp_model import TcpModel
from smartserver.cli.operations import BRANCH, KINDS, VCS, Commits
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media import tcp
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate
from smartserver.client.vfs_transport import VfsTransport, from_url
from smartserver.verbs.rules import Rule
from transports.steps import Append

pytestmark = [pytest.mark.packets, pytest.mark.unbanned("file-level calls are the baseline")]

Start = Callable[..., Packets]
Put = Callable[[VfsTransport, bytes], None]

WINDOW = TcpModel().initial
"""14,480 bytes."""
RTTS = (0.1, 0.4)
"""Of which the difference tells round trips; both are long beside what a busy machine is late by."""
TRIES = 5
"""What else the machine does makes an operation longer, and never shorter: the shortest counts."""


class Stage:
    """A server across a link, whose files a client may write."""

    def __init__(self, network: Packets, served: Path) -> None:
        self.network = network
        self.served = served

    def took(self, act: Callable[[], object]) -> tuple[float, int]:
        """Seconds, and bytes up; one round trip by the count of messages."""
        self.network.take()
        begun = time.monotonic()
        act()
        seconds = time.monotonic() - begun
        counts = self.network.take()
        assert (counts.rounds, counts.connections) == (1, 0)
        return seconds, counts.bytes_up

    def change(self, put: Put, size: int) -> tuple[float, int]:
        """On a connection that has only asked for something, so that its window is the first one still."""
        store = from_url(f"vfs://{self.network.server_address}:4156/")
        try:
            assert store.exists("log")
            return self.took(lambda: put(store, bytes(size)))
        finally:
            store.close()
            (self.served / "new").unlink(missing_ok=True)

    def round_trips(self, act: Callable[[], tuple[float, int]], expected: int) -> None:
        """So many by the clock."""
        shortest = dict.fromkeys(RTTS, 1e9)
        for _ in range(TRIES):
            for rtt in RTTS:
                self.network.change(Link(rtt))
                shortest[rtt] = min(shortest[rtt], act()[0])
            short, long = RTTS
            found = round((shortest[long] - shortest[short]) / (long - short))
            if found == expected:
                break
        assert found == expected, shortest


@pytest.fixture
def stage(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    start(Link(0.0)).close()  # or skip
    served = tmp_path / "served"
    served.mkdir()
    (served / "log").touch()
    servers = [
        f"{sys.executable} -m smartserver.cli.main serve {served} --anonymous write --allow-vfs",
        # Files are for clients of the server's own machine.
        "netem proxy --rtt 0ms --listen {server}:4156 --to 127.0.0.1:4155",
    ]
    with Crossing(Packets(Link(0.004), backend="veth"), servers) as crossing:
        network = crossing.network
        monkeypatch.setattr(tcp, "_open", lambda places, fast_open: (network.connect(places[0][4][1]), ()))
        yield Stage(network, served)


@pytest.mark.parametrize(
    "put",
    [
        lambda store, content: store.put("new", [content]),
        lambda store, content: store.perform([Append("log", content)]),
    ],
    ids=["put", "append"],
)
def test_a_file_that_fits(stage: Stage, put: Put) -> None:
    _, sent = stage.change(put, 10_000)
    fits = WINDOW - (sent - 10_000)
    assert stage.change(put, fits)[1] == WINDOW
    for size, expected in ((1, 1), (fits, 1), (fits + 1, 2)):
        stage.round_trips(lambda size=size: stage.change(put, size), expected)  # type: ignore[misc]


def test_a_push_that_fits(stage: Stage) -> None:
    """By RPC: a revision whose request takes nine to ten segments, and one of eleven."""
    address = stage.network.server_address
    commits = Commits()

    def push(size: int) -> tuple[float, int]:
        client.close()
        remote.learn_refs()
        return stage.took(lambda: pushed(size))

    def pushed(size: int) -> None:
        commit = commits.next(size)
        rule = Rule.FF if commit.parents else Rule.FORCE
        new = NewRepository(VCS, KINDS, {"HEAD": b"refs/heads/main"})
        (done,) = remote.push(PushRequest([RefUpdate(BRANCH, commit.id, rule)], commit, new)).refs
        assert done.outcome is Outcome.DONE

    with Client(lambda: TcpMedium(address, 4156), agent="test") as client:
        remote = RemoteRepository(client, "project", Knowledge(None, "hpss://server/project"))
        pushed(8)
        assert 0.9 * WINDOW < push(13_500)[1] <= WINDOW < push(15_000)[1] < 1.1 * WINDOW
        for size, expected in ((13_500, 1), (15_000, 2)):
            stage.round_trips(lambda size=size: push(size), expected)  # type: ignore[misc]
