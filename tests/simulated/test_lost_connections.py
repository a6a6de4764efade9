"""The client repeats, or knows that it does not know: the link is cut at each frame and between, and push, pull and
clone are done or not done; connections are spoilt, stall and come back; servers leave."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from builders import MAIN, History, check_whole, create, refs_of, request_id
from dialogs import Dialog, message
from history_sources import NEW, HistorySource
from memory_transport import MemoryTransport
from simulated_joint import Joint, frames

from netem.cut_everywhere import INSIDE, CutPoint, Trial, cut_everywhere
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
from smartserver.records.segment import SegmentStream
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.frames import PREFACE
from smartserver.wire.limits import IDLE_TIMEOUT

PATH = "project"
LOST = (ConnectionLost, OutcomeUnknown)
ATTEMPTS = 3
"""The number of attempts of the client."""

HISTORY = History()
LINE = HISTORY.line(3)
# A body of several frames: noise that does not compress.
LARGE = HISTORY.commit({"noise": hashlib.shake_128(b"seed").digest(90_000)}, [LINE[2]])
LINE += HISTORY.line(2, LARGE, "later")


@dataclass
class Stage:
    """A server on which the branch is at `tip`, a client without a connection to it, and a store beside the client."""

    tip: bytes | None
    bulk: bool = False
    joint: Joint = field(default_factory=lambda: Joint(SimulatedNetwork(Link(1.0))))
    local: PackRepository = field(default_factory=lambda: PackRepository(MemoryTransport()))
    client: Client = field(init=False)
    came: list[bytes] = field(default_factory=list)
    """The whole segments of a pull."""
    remote: RemoteRepository = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.joint.client()
        self.remote = self.joint.remote(PATH, self.client)
        if self.tip is not None:
            self.push(self.tip)

    def push(self, tip: bytes) -> Outcome:
        (done,) = self.remote.push(
            PushRequest([RefUpdate(MAIN, tip)], HistorySource(HISTORY), NEW, bulk=self.bulk)
        ).refs
        return done.outcome

    def pull(self) -> None:
        """Pull the revisions that the local store lacks, and move its branch."""
        there = self.local.begin().exists
        pulled = self.remote.pull(list(refs_of(self.local).values()) if there else [], bulk=self.bulk)

        def plan(transaction: Transaction) -> bytes:
            if not transaction.exists:
                create(transaction)
            transaction.check_parents()
            (tip,) = self.remote.knowledge.ref(MAIN) or ()
            transaction.set_ref(MAIN, (Tip(tip.id),))
            return b"pulled"

        transaction = self.local.begin()
        if not there:
            create(transaction)
        incoming, size = self.local.receive(transaction, False), 0
        try:
            for chunk in pulled.body:
                incoming.write(chunk)
                size += len(chunk)
            incoming.finish(pulled.result.segments, size)
        except BaseException:
            incoming.abandon()
            raise
        self.local.commit(request_id(), 0, "user", plan, incoming)

    def settle(self) -> None:
        """Finish everything under way, and check the conditions that must hold then."""
        self.client.close()
        self.joint.network.clock.run()
        site = self.joint.site.find(PATH)
        if site.exists:
            check_whole(site.repository, HISTORY)
        assert not [path for path in self.joint.tree() if path.startswith(f"{PATH}/incoming/")]
        if self.local.begin().exists:
            check_whole(self.local, HISTORY)

    @property
    def version(self) -> int:
        return self.joint.site.find(PATH).repository.snapshot().state.version

    @property
    def pulled(self) -> bytes | None:
        """The tip of the local branch."""
        return refs_of(self.local)[MAIN] if self.local.begin().exists else None


def staged(
    tip: bytes | None, local: bytes | None = None, *, bulk: bool = False
) -> Callable[[], tuple[SimulatedNetwork, Stage]]:
    """Return a function that makes stages with the server's branch at `tip` and the local one at `local`."""

    def make() -> tuple[SimulatedNetwork, Stage]:
        stage = Stage(local or tip, bulk)
        if local is not None:
            stage.pull()
        if local is not None and tip is not None:
            stage.push(tip)
        stage.settle()
        return stage.joint.network, stage

    return make


PUSHES = [
    pytest.param(None, LINE[2], 20, False, id="the first"),
    pytest.param(LINE[1], LINE[2], 200, False, id="of a small commit"),
    pytest.param(LINE[2], LINE[-1], 60, False, id="of many frames"),
    pytest.param(LINE[2], LINE[1], 20, False, id="refused"),
    pytest.param(LINE[2], LINE[-1], INSIDE, True, id="as a bulk stream"),
]
"""The tip before and after, the number of bytes between frames at which to cut, and whether it is a bulk stream."""


@pytest.mark.long
@pytest.mark.parametrize(("before", "after", "inside", "bulk"), PUSHES)
def test_a_push_cut_once_is_repeated(before: bytes | None, after: bytes, inside: int, bulk: bool) -> None:
    """The client repeats the push under the same id, and it is done once. A refusal after a cut is not certain."""
    refused = before is not None and after in HISTORY.ancestors([before])
    make = staged(before, bulk=bulk)
    whole = make()[1]
    whole.push(after)
    version = whole.version

    def check(trial: Trial[Stage]) -> None:
        if trial.error is not None:
            assert refused
            assert isinstance(trial.error, OutcomeUnknown)
            assert "sent again, it was refused: " in str(trial.error)
        else:
            assert trial.result is (Outcome.REFUSED if refused else Outcome.DONE)
        trial.state.settle()
        assert trial.state.joint.refs(PATH) == {MAIN: before if refused else after}
        assert trial.state.version == version

    places = cut_everywhere(make, lambda stage: stage.push(after), check, lost=LOST, frames=frames, inside=inside)
    assert both_ways(places)


@pytest.mark.long
@pytest.mark.parametrize(("before", "after", "inside", "bulk"), PUSHES[:3])
def test_a_push_cut_each_time(before: bytes | None, after: bytes, inside: int, bulk: bool) -> None:
    """The push is done or not; the client reports that it does not know, and the next push succeeds."""
    seen: set[tuple[bool, type | None]] = set()

    def check(trial: Trial[Stage]) -> None:
        trial.state.settle()
        refs = trial.state.joint.refs(PATH)
        assert refs in ({} if before is None else {MAIN: before}, {MAIN: after})
        if trial.error is None:
            assert trial.result is Outcome.DONE
            assert refs == {MAIN: after}
        seen.add((refs == {MAIN: after}, type(trial.error) if trial.error else None))
        assert trial.state.push(after) in (Outcome.DONE, Outcome.UNCHANGED)
        trial.state.settle()
        assert trial.state.joint.refs(PATH) == {MAIN: after}

    places = cut_everywhere(staged(before, bulk=bulk), lambda stage: stage.push(after), check, lost=LOST,
                            attempts=ATTEMPTS, frames=frames, inside=10)  # fmt: skip
    assert both_ways(places)
    # All had left the client each time, so it never says that nothing was done.
    assert seen == {(True, None), (True, OutcomeUnknown), (False, OutcomeUnknown)}


PULLS = [
    pytest.param(None, LINE[-1], 1, id="a clone"),
    pytest.param(LINE[1], LINE[2], 1, id="of a small commit"),
    pytest.param(LINE[2], LINE[-1], ATTEMPTS, id="of many frames, each time"),
    pytest.param(LINE[2], LINE[2], 1, id="of nothing"),
]
"""The tip before and after, and the number of connections to cut."""


@pytest.mark.long
@pytest.mark.parametrize(("before", "after", "attempts"), PULLS)
def test_a_pull(before: bytes | None, after: bytes, attempts: int) -> None:
    seen: set[bool] = set()

    def check(trial: Trial[Stage]) -> None:
        trial.state.settle()
        assert trial.state.joint.refs(PATH) == {MAIN: after}
        assert trial.state.pulled == (after if trial.error is None else before)
        seen.add(trial.error is None)
        trial.state.pull()
        trial.state.settle()
        assert trial.state.pulled == after

    places = cut_everywhere(staged(after, before), Stage.pull, check, lost=LOST, attempts=attempts, frames=frames)
    assert both_ways(places)
    assert True in seen
    assert False in seen or (attempts == 1 and before == after)


def both_ways(places: list[CutPoint]) -> bool:
    """Tell whether there were frames in each direction."""
    return all(sum(place.boundary and place.up is up for place in places) > 2 for up in (True, False))


@pytest.mark.long
def test_a_pull_as_a_bulk_stream_keeps_the_whole_segments_that_came() -> None:
    """A later cut leaves more whole segments; the next pull gives the same result as without a cut."""
    kept: list[int] = []
    expected = [HISTORY.segment(each) for each in (LARGE, *LINE[3:])]

    def pull(stage: Stage) -> None:
        came: list[bytes] = []
        stage.came = came
        stream = SegmentStream(graph_first=False)
        for chunk in stage.remote.pull([LINE[2]], bulk=True).body:
            stream.feed(chunk)
            came.extend(stream.segments())
        stream.finish()

    def check(trial: Trial[Stage]) -> None:
        came = trial.state.came
        assert came == expected[: len(came)]
        assert trial.error is not None or len(came) == len(expected)
        kept.append(len(came))
        trial.state.settle()
        pull(trial.state)
        assert trial.state.came == expected

    make = staged(LINE[-1], LINE[2], bulk=True)
    assert both_ways(cut_everywhere(make, pull, check, lost=LOST, frames=frames))
    assert {0, len(expected)} <= set(kept)


TOPIC = b"refs/heads/topic"

FIRST_PACKET = 1400
"""Bytes that go with a SYN, about."""

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


def begun() -> Stage:
    """Return a stage at the second revision."""
    return staged(LINE[1])()[1]


def answer_size() -> int:
    """Bytes that the server sends for the push."""
    stage = begun()
    stage.joint.network.take()
    assert stage.push(LINE[2]) is Outcome.DONE
    return stage.joint.network.take().bytes_down


SPOILT_AT = [*range(len(PREFACE)), *range(len(PREFACE), answer_size() - 20, 5)]
"""At the end are the counters, where other bytes are other numbers."""


@pytest.mark.parametrize("at", SPOILT_AT)
def test_an_answer_that_is_spoilt_is_asked_for_again(at: int) -> None:
    """The connection is of no more use; the same request on another one is answered from the log."""
    stage = begun()
    version = stage.version
    stage.joint.network.links.append(spoilt_down(at))
    assert stage.push(LINE[2]) is Outcome.DONE
    assert (stage.joint.refs()[MAIN], stage.version) == (LINE[2], version + 1)
    stage.settle()


@pytest.mark.parametrize("at", SPOILT_AT[::5])
def test_answers_that_are_all_spoilt_leave_it_unknown(at: int) -> None:
    """The change was made; the client cannot know, and says what came instead of an answer."""
    stage = begun()
    stage.joint.network.links.extend([spoilt_down(at)] * 3)
    with pytest.raises(OutcomeUnknown) as raised:
        stage.push(LINE[2])
    cause = raised.value.__cause__
    assert isinstance(cause, (RemoteProtocolError, ConnectionLost))
    assert str(cause) in str(raised.value)
    stage.settle()
    assert stage.joint.refs()[MAIN] == LINE[2]


def test_others_push_between_a_push_and_its_repetition() -> None:
    """The repeat gets the first answer, also when the branch has moved on since."""
    stage = begun()
    with stage.joint.client() as other:
        theirs = stage.joint.remote(PATH, other)
        theirs.push(PushRequest([RefUpdate(TOPIC, SIDE[0])], HistorySource(HISTORY), NEW))
        # Requests of this client are answered 1.5 s after it begins to connect; it repeats at 2.2 s.
        stage.joint.network.links.append(Link(1.0, down=[Cut(0)]))
        force = SetLastRevisionRequest(MAIN, SIDE[0], Rule.FORCE)
        moved: list[bytes] = []

        def move() -> None:
            moved.append(stage.joint.refs()[MAIN])
            dialog = Dialog(stage.joint.site)
            dialog.ask(message((branch_set_last_revision, force), path=PATH))

        stage.joint.network.clock.call_later(2.1, move)
        assert stage.push(LINE[2]) is Outcome.DONE
        assert moved == [LINE[2]]
        assert stage.joint.refs()[MAIN] == SIDE[0]
        assert stage.remote.knowledge.ref(MAIN) == (Tip(SIDE[0]),)
    stage.settle()


@pytest.mark.parametrize("effect", [Stall(100), Stall(0)])
def test_a_link_that_stalls_for_ever_is_given_up(effect: Effect) -> None:
    """After pings that nobody answers; an answer that is under way would have come."""
    stage = begun()
    stage.joint.network.links.append(Link(1.0, up=[effect]))
    started = stage.joint.network.clock.now
    assert stage.push(LINE[2]) is Outcome.DONE
    waited = stage.joint.network.clock.now - started
    assert IDLE_TIMEOUT < waited < 2 * IDLE_TIMEOUT
    assert stage.joint.refs()[MAIN] == LINE[2]


def test_a_link_that_stalls_for_a_while_is_not() -> None:
    stage = begun()
    stage.joint.network.links.append(Link(1.0, up=[Stall(100, 100.0)]))
    stage.joint.network.take()
    assert stage.push(LINE[2]) is Outcome.DONE
    assert stage.joint.network.take().connections == 1


def test_a_request_that_crosses_the_servers_leaving() -> None:
    """It was not seen any more: it is sent again elsewhere."""
    stage = begun()
    stage.client.call(server_ping, PingRequest())
    clock = stage.joint.network.clock
    clock.call_later(0.3, lambda: stage.joint.shells[-1].session.go_away("the server is stopping"))
    version = stage.version
    assert stage.push(LINE[2]) is Outcome.DONE
    assert stage.version == version + 1


def test_the_servers_leaving_during_an_upload_lets_it_finish() -> None:
    stage = begun()
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
    stage = begun()
    client = stage.joint.client()
    remote = stage.joint.remote(PATH, client)
    force = [RefUpdate(TOPIC, LINE[1], Rule.FORCE)]
    stage.joint.network.take()
    remote.push(PushRequest(force, HistorySource(HISTORY), NEW))
    first, *_ = (message.content for message in stage.joint.network.take().messages if message.up)
    client.close()
    assert len(first) <= FIRST_PACKET
    others = stage.joint.client()
    theirs = stage.joint.remote(PATH, others)
    theirs.push(PushRequest([RefUpdate(TOPIC, None)], HistorySource(HISTORY), NEW))

    medium = stage.joint.connect()
    assert medium.write_some(memoryview(first)) == len(first)
    assert medium.read(1000)
    medium.close()
    assert TOPIC not in stage.joint.refs(PATH)
    others.close()
    stage.settle()
