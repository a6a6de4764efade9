"""server.session: clients that do not read, that send much, and that are beside others: nobody waits for them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from builders import MAIN, History
from dialogs import PATH, message
from history_sources import NEW, HistorySource
from simulated_joint import LOW_WATER_MARK, Joint

from netem.link import Link
from netem.simulated import SimulatedStream
from smartserver.client.call import Client
from smartserver.client.push import PushRequest
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.store.open_pack import SegmentReader
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Body, Cancel, End, Error, Event, Reply, Request
from smartserver.wire.limits import PIECE
from smartserver.wire.messages import encode

MEGABYTES = 12


@pytest.fixture(scope="module")
def history() -> History:
    """One revision after the other, a megabyte each."""
    history = History()
    noise = random.Random(7)
    parent: bytes | None = None
    for number in range(MEGABYTES):
        files = {"noise": noise.randbytes(1_000_000), "n": b"%d" % number}
        parent = history.commit(files, () if parent is None else (parent,))
    return history


@pytest.fixture
def netem_link() -> Link:
    return Link(0.1, window=256 * 1024)


@pytest.fixture
def stocked(joint: Joint, history: History) -> Iterator[tuple[Joint, Client]]:
    """A server that has it all, and a client that brought it."""
    with joint.client() as client:
        source = HistorySource(history)
        remote = joint.remote(PATH, client)
        assert (
            remote.push(PushRequest([RefUpdate(MAIN, list(history.parents)[-1])], source, NEW)).refs[0].outcome
            is Outcome.DONE
        )
        yield joint, client


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each read of the store for a body."""
    done: list[int] = []
    read = SegmentReader.read

    def counted(reader: SegmentReader, size: int) -> bytes:
        piece = read(reader, size)
        done.append(len(piece))
        return piece

    monkeypatch.setattr(SegmentReader, "read", counted)
    return done


class Raw:
    """A client that does as a test says, on its own connection."""

    def __init__(self, joint: Joint) -> None:
        self.wire = Connection(Role.CLIENT)
        self.stream: SimulatedStream = joint.connect()._stream
        self.heard: list[Event] = []

    def send(self, *events: Event) -> None:
        for event in events:
            self.stream.send(self.wire.send(event))

    def read(self, size: int = 65536) -> None:
        self.wire.receive_data(self.stream.read(size))
        while (event := self.wire.next_event()) is not None:
            self.heard.append(event)

    def read_until(self, kind: type[Event], number: int) -> None:
        while not any(isinstance(event, kind) and getattr(event, "id", 0) == number for event in self.heard):
            self.read()

    def body(self, number: int) -> int:
        return sum(len(event.chunk) for event in self.heard if isinstance(event, Body) and event.id == number)


PULL = Request(1, encode(message((repository_pull, PullRequest()))))


def test_a_client_that_does_not_read_costs_two_pieces(
    stocked: tuple[Joint, Client], reads: list[int], history: History
) -> None:
    joint, client = stocked
    stalled = Raw(joint)
    stalled.send(PULL)
    joint.network.clock.sleep(60)
    # What the link holds, what waits for it, the piece in which that was noticed, and one read ahead.
    assert sum(reads) <= 256 * 1024 + LOW_WATER_MARK + PIECE + PIECE
    held = sum(reads)

    source = HistorySource(history)
    other = joint.remote("other", client)
    first = next(iter(history.parents))
    other.push(PushRequest([RefUpdate(MAIN, first)], source, NEW))
    joint.network.take()
    for number in range(20):
        ref = b"refs/heads/%d" % number
        assert other.push(PushRequest([RefUpdate(ref, first)], source, NEW)).refs[0].outcome is Outcome.DONE
    assert joint.network.counts().application_rounds == 20
    assert sum(reads) == held

    stalled.read_until(End, 1)
    assert stalled.body(1) == sum(len(history.segment(each)) for each in history.parents)
    assert not reads[-1]


def test_a_cancelled_clone_stops(stocked: tuple[Joint, Client], reads: list[int]) -> None:
    joint, _ = stocked
    raw = Raw(joint)
    raw.send(PULL)
    raw.read_until(Body, 1)
    raw.send(Cancel(1))
    raw.read_until(Error, 1)
    assert raw.body(1) < 4 * PIECE
    before = sum(reads)
    raw.send(Request(2, encode(message((server_ping, PingRequest()), path=""))))
    raw.read_until(Reply, 2)
    assert sum(reads) == before


def test_a_clone_that_its_reader_leaves_costs_another_connection(
    stocked: tuple[Joint, Client], history: History
) -> None:
    """Reading on would cost more; the next request opens a connection of its own."""
    joint, client = stocked
    remote = joint.remote(PATH, client)
    first = next(remote.pull().body)
    assert first
    joint.network.take()
    client.call(server_ping, PingRequest())
    assert joint.network.counts().connections == 1
