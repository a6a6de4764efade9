"""client.retry: connections are lost, stall and come back: the client repeats, or knows that it does not know."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from builders import MAIN, History
from dialogs import Dialog, message
from history_sources import NEW, HistorySource
from simulated_joint import Joint

from netem.effects import Cut, Effect, Stall, base
from netem.link import Link
from netem.simulated import SimulatedNetwork
from smartserver.client.call import Client
from smartserver.client.medium import ConnectionLost
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.errors import OutcomeUnknown
from smartserver.records.model import Tip
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.frames import PREFACE
from smartserver.wire.limits import IDLE_TIMEOUT

PATH = "project"
TOPIC = b"refs/heads/topic"

FIRST_PACKET = 1400
"""Bytes that go with a SYN, about."""

HISTORY = History()
LINE = HISTORY.line(4)
SIDE = HISTORY.line(1, LINE[0], "side")


@dataclass(frozen=True)
class Spoilt(Effect):
    """The bits of each byte after the first `after` are turned over."""

    after: int
    name = "spoilt"
    arguments = "BYTES"

    def begin(self) -> base.Stage:
        left = self.after

        def stage(parcel: base.Parcel) -> Iterable[base.Parcel]:
            nonlocal left
            whole = bytes(parcel.content)
            kept, left = min(left, len(whole)), max(0, left - len(whole))
            parcel.content = whole[:kept] + bytes(byte ^ 0xFF for byte in whole[kept:])
            return (parcel,)

        return stage

    @classmethod
    def parse(cls, after: str) -> Spoilt:
        return cls(int(after))


def spoilt_down(at: int) -> Link:
    """A medium on which the server's bytes are garbage from there on."""
    return Link(1.0, down=[Spoilt(at)])


def cut_down(at: int) -> Link:
    """A medium on which the server's bytes end there."""
    return Link(1.0, down=[Cut(at)])


@dataclass
class Stage:
    """A server with a repository at the second of three revisions, and a client without a connection to it."""

    joint: Joint
    client: Client
    remote: RemoteRepository
    source: HistorySource

    @classmethod
    def make(cls) -> Stage:
        joint = Joint(SimulatedNetwork(Link(1.0)))
        client = joint.client()
        stage = cls(joint, client, joint.remote(PATH, client), HistorySource(HISTORY))
        assert stage.push(LINE[1]) is Outcome.DONE
        client.close()
        joint.network.clock.run()
        return stage

    def push(self, tip: bytes) -> Outcome:
        return self.remote.push(PushRequest([RefUpdate(MAIN, tip)], self.source, NEW)).refs[0].outcome

    @property
    def tip(self) -> bytes:
        return self.joint.refs()[MAIN]

    def version(self) -> int:
        return self.joint.site.find(PATH).repository.snapshot().state.version

    def settle(self) -> None:
        """Let everything under way come to its end, and check what must hold then."""
        self.client.close()
        self.joint.network.clock.run()
        assert self.joint.site.find(PATH).repository.verify().problems == ()
        assert not [path for path in self.joint.tree() if path.startswith(f"{PATH}/incoming/")]


def answer_size() -> int:
    """Bytes that the server sends for the push."""
    stage = Stage.make()
    stage.joint.network.take()
    assert stage.push(LINE[2]) is Outcome.DONE
    return stage.joint.network.take().bytes_down


SPOILT_AT = [*range(len(PREFACE)), *range(len(PREFACE), answer_size() - 20, 5)]
"""At the end are the counters, where other bytes are other numbers."""


@pytest.mark.parametrize("at", SPOILT_AT)
def test_an_answer_that_is_spoilt_is_asked_for_again(at: int) -> None:
    """The connection is of no more use; the same request on another one is answered from the log."""
    stage = Stage.make()
    version = stage.version()
    stage.joint.network.links.append(spoilt_down(at))
    assert stage.push(LINE[2]) is Outcome.DONE
    assert (stage.tip, stage.version()) == (LINE[2], version + 1)
    stage.settle()


@pytest.mark.parametrize("at", SPOILT_AT[::5])
def test_answers_that_are_all_spoilt_leave_it_unknown(at: int) -> None:
    """The change was made; the client cannot know, and says what came instead of an answer."""
    stage = Stage.make()
    stage.joint.network.links.extend([spoilt_down(at)] * 3)
    with pytest.raises(OutcomeUnknown) as raised:
        stage.push(LINE[2])
    cause = raised.value.__cause__
    assert isinstance(cause, (RemoteProtocolError, ConnectionLost))
    assert str(cause) in str(raised.value)
    stage.settle()
    assert stage.tip == LINE[2]


def test_others_push_between_a_push_and_its_repetition() -> None:
    """The repeat gets the first answer, also when the branch has moved on since."""
    stage = Stage.make()
    with stage.joint.client() as other:
        theirs = stage.joint.remote(PATH, other)
        theirs.push(PushRequest([RefUpdate(TOPIC, SIDE[0])], stage.source, NEW))
        # Requests of this client are answered 1.5 s after it begins to connect; it repeats at 2.2 s.
        stage.joint.network.links.append(cut_down(0))
        force = SetLastRevisionRequest(MAIN, SIDE[0], Rule.FORCE)
        moved: list[bytes] = []

        def move() -> None:
            moved.append(stage.tip)
            dialog = Dialog(stage.joint.site)
            dialog.ask(message((branch_set_last_revision, force), path=PATH))

        stage.joint.network.clock.call_later(2.1, move)
        assert stage.push(LINE[2]) is Outcome.DONE
        assert moved == [LINE[2]]
        assert stage.tip == SIDE[0]
        assert stage.remote.knowledge.ref(MAIN) == (Tip(SIDE[0]),)
    stage.settle()


@pytest.mark.parametrize("effect", [Stall(100), Stall(0)])
def test_a_link_that_stalls_for_ever_is_given_up(effect: Effect) -> None:
    """After pings that nobody answers; an answer that is under way would have come."""
    stage = Stage.make()
    stage.joint.network.links.append(Link(1.0, up=[effect]))
    started = stage.joint.network.clock.now
    assert stage.push(LINE[2]) is Outcome.DONE
    waited = stage.joint.network.clock.now - started
    assert IDLE_TIMEOUT < waited < 2 * IDLE_TIMEOUT
    assert stage.tip == LINE[2]


def test_a_link_that_stalls_for_a_while_is_not() -> None:
    stage = Stage.make()
    stage.joint.network.links.append(Link(1.0, up=[Stall(100, 100.0)]))
    stage.joint.network.take()
    assert stage.push(LINE[2]) is Outcome.DONE
    assert stage.joint.network.take().connections == 1


def test_a_request_that_crosses_the_servers_leaving() -> None:
    """It was not seen any more: it is sent again elsewhere."""
    stage = Stage.make()
    stage.client.call(server_ping, PingRequest())
    clock = stage.joint.network.clock
    clock.call_later(0.3, lambda: stage.joint.shells[-1].session.go_away("the server is stopping"))
    version = stage.version()
    assert stage.push(LINE[2]) is Outcome.DONE
    assert stage.version() == version + 1


def test_the_servers_leaving_during_an_upload_lets_it_finish() -> None:
    stage = Stage.make()
    tip = HISTORY.commit({"noise": random.Random(1).randbytes(30_000)}, [LINE[1]])
    stage.joint.network.links.append(Link(1.0, rate=5000.0))
    stage.joint.network.clock.call_later(4.0, lambda: stage.joint.shells[-1].session.go_away("the server is stopping"))
    stage.joint.network.take()
    assert stage.push(tip) is Outcome.DONE
    assert stage.joint.network.take().connections == 1
    stage.client.call(server_ping, PingRequest())
    assert stage.joint.network.take().connections == 1


def test_a_packet_with_a_request_that_arrives_twice() -> None:
    """With TCP Fast Open the copy of a connection's first packet is a second connection, on which the same is asked."""
    stage = Stage.make()
    client = stage.joint.client()
    remote = stage.joint.remote(PATH, client)
    force = [RefUpdate(TOPIC, LINE[1], Rule.FORCE)]
    stage.joint.network.take()
    remote.push(PushRequest(force, stage.source, NEW))
    first, *_ = (message.content for message in stage.joint.network.take().messages if message.up)
    client.close()
    assert len(first) <= FIRST_PACKET
    others = stage.joint.client()
    theirs = stage.joint.remote(PATH, others)
    theirs.push(PushRequest([RefUpdate(TOPIC, None)], stage.source, NEW))

    medium = stage.joint.connect()
    assert medium.write_some(memoryview(first)) == len(first)
    assert medium.read(1000)
    medium.close()
    assert TOPIC not in stage.joint.refs(PATH)
    others.close()
    stage.settle()
