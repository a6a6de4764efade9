"""Every verb and every operation, counted on the link against `budgets.toml`. What is not in that file fails."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import pytest
from builders import MAIN, History
from counting import Counting
from history_sources import NEW, HistorySource
from simulated_joint import Joint
from verb_examples import EXAMPLES, served_examples

from netem.link import Link
from netem.simulated import SimulatedNetwork
from smartserver.cli.copying import StoreSource, of_snapshot
from smartserver.cli.dump import told_by
from smartserver.client.call import Client
from smartserver.client.copy import CopyEndpoint
from smartserver.client.load import load
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.request import Outgoing
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.errors import DivergedBranches
from smartserver.meters import BYTES_RECEIVED, BYTES_SENT, CONNECTIONS, TRIPS
from smartserver.store.repository import PackRepository
from smartserver.verbs.all import every_verb
from smartserver.verbs.declare import VERBS, Body
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.messages import RequestFlag
from transports.tar import TarTransport

BUDGETS = tomllib.loads((Path(__file__).parent.parent / "budgets.toml").read_text(encoding="utf-8"))
TOPIC = b"refs/heads/topic"
PATH = "project"


@dataclass
class Stage:
    """A served repository of ten revisions, one client that pushed them, and one more revision to come."""

    network: SimulatedNetwork
    joint: Joint
    client: Client
    remote: RemoteRepository
    history: History
    line: list[bytes]
    source: HistorySource = field(init=False)

    def __post_init__(self) -> None:
        self.source = HistorySource(self.history)

    def push(self, ref: bytes, tip: bytes) -> Outcome:
        return self.remote.push(PushRequest([RefUpdate(ref, tip)], self.source, NEW)).refs[0].outcome

    def large(self, parent: bytes | None, count: int = 12) -> bytes:
        """A line of revisions of together more than is sent before the graph; its tip."""
        for number in range(count):
            files = {"noise": os.urandom(16_000), "n": b"%d\n" % number}
            parent = self.history.commit(files, () if parent is None else (parent,), f"noise {number}")
        assert parent is not None
        return parent


@pytest.fixture
def stage(network: SimulatedNetwork) -> Iterator[Stage]:
    history = History()
    line = history.line(11)
    joint = Joint(network)
    with joint.client() as client:
        stage = Stage(network, joint, client, joint.remote(PATH, client), history, line)
        assert stage.push(MAIN, line[9]) is Outcome.DONE
        network.take()  # The connection is held from here on; what came before is not counted.
        yield stage


def marked(names: Iterable[str]) -> list[object]:
    """A case for each name, under its budget."""
    return [pytest.param(name, marks=pytest.mark.max_round_trips(name)) for name in names]


def test_every_verb_has_a_budget() -> None:
    assert sorted(BUDGETS["verbs"]) == [verb.name for verb in every_verb()]
    assert set(BUDGETS["verbs"].values()) == {1}


def use(network: SimulatedNetwork, name: str, *, held: bool) -> None:
    """Use the example of a verb, on a connection that is held or on a fresh one."""
    served, line = served_examples()
    segment, verb, example = served.history.segment(line[3]), VERBS[name], EXAMPLES[name]
    joint = Joint(network, served.transport)
    joint.site.allows_vfs = True
    up = verb.body is Body.UP
    flags = RequestFlag.BODY if up else RequestFlag.NONE
    calls = [(verb, example.arguments(line))]
    with joint.client() as client:
        if held:
            client.call(server_ping, PingRequest())
            network.take()
        answer = client.request(Outgoing(example.path, calls, flags, body=(lambda: [(segment, 1)]) if up else None))
        for _ in answer.body:
            pass
        assert isinstance(answer.results[0], verb.result_type)


@pytest.mark.parametrize("name", marked(sorted(EXAMPLES)))
def test_verb_on_a_held_connection(network: SimulatedNetwork, name: str) -> None:
    use(network, name, held=True)
    counts = network.counts()
    assert counts.application_rounds == counts.rounds


@pytest.mark.parametrize("name", ["Branch.set_last_revision", "Repository.pull"])
@pytest.mark.max_round_trips(2)
def test_verb_on_a_fresh_connection(network: SimulatedNetwork, name: str) -> None:
    """No verb has a part in the handshake: one that changes, and one whose answer has a body."""
    use(network, name, held=False)
    assert network.counts().handshake_rounds == 1


# -- operations; those of the tools are with the tools, as `interop/git_rows.py` has them


def push_one(stage: Stage) -> None:
    assert stage.push(MAIN, stage.line[10]) is Outcome.DONE
    assert stage.source.planned[-1] == 1


def push_large(stage: Stage) -> None:
    assert stage.push(MAIN, stage.large(stage.line[9])) is Outcome.DONE
    assert stage.network.counts().bytes_up > 12 * 16_000


def large_diverged(stage: Stage) -> None:
    tip = stage.large(stage.line[5], 400)  # 6.4 MB
    done = stage.remote.push(PushRequest([RefUpdate(MAIN, tip)], stage.source, NEW)).refs[0]
    assert isinstance(done.error, DivergedBranches)


def clone(stage: Stage) -> None:
    pulled = stage.joint.remote(PATH, stage.client).pull()
    assert b"".join(pulled.body) == b"".join(map(stage.history.segment, stage.line[:10]))


def silent(size: int, done: int, total: int) -> None:
    """Nothing is said of how far it is."""


@contextmanager
def dumped(stage: Stage, earlier: Mapping[str, BinaryIO] | None = None) -> Iterator[Mapping[str, BinaryIO]]:
    """The archives that a dump makes."""
    before = dict(earlier or {})
    since = PackRepository(TarTransport(before)).snapshot() if before else None
    with TemporaryFile() as spooled, TemporaryFile() as file:
        pieces, _, _ = told_by(CopyEndpoint(PATH, stage.remote), since, spooled, silent)
        file.writelines(pieces)
        file.flush()
        yield {**before, f"{len(before)}.tar": file}


def dump_all(stage: Stage) -> None:
    with dumped(stage) as files:
        made = PackRepository(TarTransport(files)).snapshot()
        assert made.read_ranges([(0, 10)]).read(1 << 20) == b"".join(map(stage.history.segment, stage.line[:10]))


def dump_since(stage: Stage) -> None:
    with dumped(stage) as first:
        push_one(stage)
        stage.network.take()
        with dumped(stage, first) as both:
            made = PackRepository(TarTransport(both)).snapshot()
            assert made.read_ranges([(10, 11)]).read(1 << 20) == stage.history.segment(stage.line[10])
            assert [pack.segments for pack in made.state.packs] == [10, 1]


def load_all(stage: Stage) -> None:
    stage.push(MAIN, stage.large(stage.line[9]))
    with dumped(stage) as files:
        source = StoreSource(PackRepository(TarTransport(files)))
        stage.network.take()
        target = CopyEndpoint("elsewhere", stage.joint.remote("elsewhere", stage.client))
        pushed, _ = load(of_snapshot(source.snapshot), source, NEW, target, silent, name="x.tar", force=False)
    assert (pushed.revisions, pushed.created) == (22, True)
    assert stage.joint.refs("elsewhere") == stage.joint.refs()


def missing_base(stage: Stage) -> None:
    """A base the server has, but not among the ancestors."""
    side = stage.history.line(1, stage.line[5], "side")[0]
    assert stage.push(TOPIC, side) is Outcome.DONE
    foreign = stage.history.key_at(side, "src/side.txt")
    text = stage.history.objects[foreign].text + b"and more\n"
    tip = stage.history.commit({**stage.history.files(stage.line[9]), "src/main.txt": text}, [stage.line[9]])
    stage.source.bases[b"src/main.txt"] = foreign
    stage.network.take()
    assert stage.push(MAIN, tip) is Outcome.DONE
    assert stage.network.counts().flights_up == 2


OPERATIONS: dict[str, Callable[[Stage], None]] = {
    "push one revision": push_one,
    "large push": push_large,
    "large diverged push, refused": large_diverged,
    "clone": clone,
    "dump": dump_all,
    "dump since another": dump_since,
    "load": load_all,
    "push on a base the server may not use": missing_base,
}


def test_every_operation_has_a_budget_and_a_case() -> None:
    assert sorted(OPERATIONS) == sorted(BUDGETS["operations"])


@pytest.mark.parametrize("name", marked(OPERATIONS))
def test_operation(stage: Stage, name: str) -> None:
    OPERATIONS[name](stage)


@pytest.mark.parametrize("name", ["push one revision", "large push", "clone"])
def test_a_client_counts_what_the_link_counts(stage: Stage, name: str) -> None:
    counting = Counting()
    OPERATIONS[name](stage)
    counts = stage.network.counts()
    assert counting[TRIPS] == counts.rounds > 0
    assert (counting[BYTES_SENT], counting[BYTES_RECEIVED]) == (counts.bytes_up, counts.bytes_down)
    assert counting[CONNECTIONS] == counts.connections == 0


class TestSlowLink:
    """1 Mbit/s at 1000 ms, where the bytes before a refusal count."""

    @pytest.fixture
    def netem_link(self) -> Link:
        return Link(1.0, 125_000)

    def test_a_large_diverged_push_is_refused_before_its_records_are_sent(self, stage: Stage) -> None:
        large_diverged(stage)
        counts = stage.network.counts()
        # The graph (23 bytes a revision) must have come; beyond it no more than the link carried until the refusal was
        # there, and what its buffer had taken.
        graph = 400 * 23 + 1000
        assert counts.bytes_up <= graph + 125_000 + 64 * 1024 + stage.network.link.buffer
        assert counts.rounds == 1
