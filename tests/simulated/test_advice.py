"""What a server advises travels in an answer that goes anyway: no round trip, and bytes where it says something."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import MAIN, History, push
from simulated_joint import Joint

from netem.counter import Counts
from smartserver.client.call import Caller, Client
from smartserver.client.knowledge import OLD_AFTER, Knowledge
from smartserver.client.repository import RemoteRepository
from smartserver.server import advice, context
from smartserver.wire.messages import Advice, encode, raw
from smartserver.wire.messages import Reply as ReplyMessage

URL = "hpss://h/project"


class Reader:
    """A client that remembers, on a held connection."""

    def __init__(self, joint: Joint, folder: Path) -> None:
        clock = joint.network.clock
        self.joint = joint
        self.folder = str(folder)
        self.client = Client(joint.connect, (), Caller("smartserver/0.1.0"), clock=lambda: clock.now, sleep=clock.sleep)
        self.told: list[Sequence[Advice]] = []

    def read(self, *, asks: bool = False) -> Counts:
        """What a command does that asks for the refs; what that cost."""
        remote = RemoteRepository(self.client, "project", Knowledge(self.folder, URL))
        remote.advised = self.told.append
        remote.asks_for_advice = asks
        self.joint.network.take()
        remote.learn_refs()
        return self.joint.network.take()


@pytest.fixture
def reader(joint: Joint, tmp_path: Path) -> Reader:
    history = History()
    (revision,) = history.line(1)
    push(joint.site.find("project").repository, history, [revision], {MAIN: revision})
    reader = Reader(joint, tmp_path)
    reader.read()
    return reader


def grown(joint: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pack is many."""
    monkeypatch.setattr(context, "of_packs", lambda root: Advice("packs", raw({"packs": len(root.packs)})))


def test_it_takes_no_round_trip_and_few_bytes(reader: Reader, joint: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = reader.read()
    assert reader.told == []
    grown(joint, monkeypatch)
    told = reader.read()
    said = Advice("packs", raw({"packs": 1}))
    assert reader.told == [[said]]
    assert (told.rounds, told.depth, told.bytes_up) == (plain.rounds, plain.depth, plain.bytes_up)
    assert told.bytes_down - plain.bytes_down == 1 + len(encode(said)) < 30


def test_an_answer_without_any_is_as_short_as_it_was(reader: Reader) -> None:
    """As a server wrote it that knew of no advice: four fields."""
    assert encode(ReplyMessage([]))[0] == 0x94
    plain, again = reader.read(), reader.read()
    assert (again.bytes_up, again.bytes_down) == (plain.bytes_up, plain.bytes_down)


def test_an_older_client_is_told_at_first_and_once_a_day(
    reader: Reader, joint: Joint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "OLDEST_CLIENT", "0.2")
    said = [Advice("client", raw({"client": "0.1.0", "expected": "0.2"}))]
    plain = reader.read()
    assert reader.told == [], "it was not said who asks"
    (file,) = tmp_path.iterdir()
    os.utime(file, (0, file.stat().st_mtime - OLD_AFTER - 9))
    introduced = reader.read()
    assert reader.told == [said]
    assert introduced.rounds == plain.rounds
    assert 0 < introduced.bytes_up - plain.bytes_up < 40
    assert reader.read().bytes_up == plain.bytes_up
    assert reader.told == [said]
    reader.read(asks=True)
    assert reader.told == [said, said]
    file.unlink()
    reader.read()
    assert reader.told == [said, said, said]
