"""Reads of less than whole revisions on a link: one round trip each; what a cut or a damaged pack leaves of one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import GIT, KINDS, MAIN, History
from bzr_builders import TRUNK, BzrHistory
from simulated_joint import HistorySource, Joint

from netem.cut_everywhere import Trial, cut_everywhere
from netem.link import Link
from netem.simulated import SimulatedNetwork
from smartserver.client.call import Client
from smartserver.client.content import Part
from smartserver.client.exchange import Content
from smartserver.client.knowledge import Knowledge
from smartserver.client.medium import ConnectionLost
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, RefUpdate
from smartserver.errors import CorruptFile, NoSuchPart, Unsupported
from smartserver.records.model import Tip
from smartserver.records.segment import SegmentStream, decode_revision
from smartserver.store.open_pack import pack_path
from smartserver.vcs.bzr.kinds import INVENTORY, TEXT
from smartserver.vcs.bzr.selector import History as Selected
from smartserver.vcs.bzr.selector import Named, Parts, RevisionsField, TreesField, decode_answer, encode
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.frames import HEADER

BUDGETS = tomllib.loads((Path(__file__).parent.parent / "budgets.toml").read_text(encoding="utf-8"))["reads"]

HISTORY = BzrHistory()
LINE = HISTORY.line(6)
BIG = HISTORY.commit({**HISTORY.trees[LINE[5]], b"big": b"".join(b"%d," % (n * n) for n in range(30_000))}, [LINE[5]])


def read_parts(
    remote: RemoteRepository,
    chosen: RevisionsField | None = None,
    trees: TreesField | None = None,
    inside: tuple[RevisionsField | None, TreesField | None] | None = None,
    **more: Any,
) -> Content:
    return remote.read(encode(Parts(chosen, trees, inside)), **more)


class Stage:
    """A served repository with the branch `trunk`, and a client that holds a connection."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.joint = Joint(network)
        repository = self.joint.site.find("project").repository
        HISTORY.push(repository, LINE[:3], {TRUNK: Tip(LINE[2], b"3")})
        HISTORY.push(repository, [*LINE[3:], BIG], {TRUNK: Tip(LINE[5], b"6"), b"big": Tip(BIG, b"7")})
        self.client: Client = self.joint.client()

    def connect(self) -> None:
        self.client.call(server_ping, PingRequest())
        self.joint.network.take()

    def remote(self, path: str = "project/trunk") -> RemoteRepository:
        return RemoteRepository(self.client, path, Knowledge(None, f"hpss://h/{path}", path), below=True)


@pytest.fixture
def stage(network: SimulatedNetwork) -> Iterator[Stage]:
    stage = Stage(network)
    stage.connect()
    with stage.client:
        yield stage


def texts(content: Content) -> dict[bytes, bytes]:
    return {record.key: record.text for part in content.parts for record in part.records if record.kind == TEXT}


def keys(parts: Sequence[Part], kind: int) -> list[bytes]:
    return [record.key for part in parts for record in part.records if record.kind == kind]


def expected(revision: bytes, *paths: bytes) -> dict[bytes, bytes]:
    return {HISTORY.text(path, revision): HISTORY.trees[revision][path] for path in paths}


def file(stage: Stage) -> None:
    content = read_parts(stage.remote(), trees=TreesField([-1], paths=[b"README"]))
    assert decode_answer(content.result.said).ids == [LINE[5]]
    assert texts(content) == expected(LINE[5], b"README")


def folder(stage: Stage) -> None:
    content = read_parts(stage.remote("project/trunk/src"), trees=TreesField([LINE[3]], inner=True, texts=False))
    parts = list(content.parts)
    assert keys(parts, INVENTORY) == [LINE[3]]
    assert keys(parts, TEXT) == []


def from_to(stage: Stage) -> None:
    chosen = RevisionsField(left_hand=True, newest=4, oldest=3)
    parts = list(read_parts(stage.remote(), chosen, TreesField(each=True, changed=True)).parts)
    assert [part.revision for part in parts[:2]] == [LINE[3], LINE[2]]
    assert keys(parts, TEXT) == [HISTORY.text(b"src/a.py", LINE[number]) for number in (3, 2, 1)]


def either(stage: Stage) -> None:
    inside = (None, TreesField([-1], inner=True))
    for path, paths in (("project/trunk", []), ("project/trunk/src/a.py", [b"src/a.py"])):
        content = read_parts(stage.remote(path), RevisionsField(limit=1), inside=inside)
        assert texts(content) == expected(LINE[5], *paths)
        stage.joint.network.take() if not paths else None


def history_of(stage: Stage) -> None:
    names: list[tuple[int, Named]] = [(4, 4), (5, -2), (3, LINE[2])]
    for number, named in names:
        came_of = stage.remote().read(encode(Selected(named)), haves=[LINE[1]])
        stream = SegmentStream(graph_first=False)
        for chunk in came_of.segments:
            stream.feed(chunk)
        came = [decode_revision(segment, 0).revision for segment in stream.segments()]
        assert came == LINE[2:number]
        assert decode_answer(came_of.result.said).ids == [LINE[number - 1]]
        if number != 3:
            stage.joint.network.take()


def refused(stage: Stage) -> None:
    with pytest.raises(NoSuchPart):
        read_parts(stage.remote(), trees=TreesField([99]))


READS: dict[str, Callable[[Stage], None]] = {
    "a file": file,
    "a folder": folder,
    "revisions from number to number, with what they changed": from_to,
    "what the path turns out to be": either,
    "the history of one revision": history_of,
    "nothing, refused": refused,
}


def test_every_read_has_a_budget() -> None:
    assert READS.keys() == BUDGETS.keys()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.max_round_trips(name)) for name in READS])
def test_read(stage: Stage, name: str) -> None:
    READS[name](stage)


def test_the_connection_goes_on_after_a_body(stage: Stage) -> None:
    remote = stage.remote("project/big")
    assert texts(read_parts(remote, trees=TreesField([-1]))) == expected(BIG, *HISTORY.trees[BIG])
    file(stage)
    assert stage.joint.network.counts().rounds <= 3  # The first body is larger than one window.
    assert len(stage.joint.shells) == 1


def test_a_damaged_pack_ends_the_body(stage: Stage) -> None:
    """What came before stands, the error names the pack, and the connection serves on."""
    site = stage.joint.site.find("project")
    place = f"project/{pack_path(site.repository.snapshot().state.packs[1].name)}"
    whole = stage.joint.storage.get(place)
    at = site.repository.snapshot().first(TEXT, HISTORY.text(b"big", BIG))
    assert at is not None
    middle = at.frame_offset + at.frame_length // 2
    stage.joint.storage.delete(place)
    stage.joint.storage.put(place, [whole[:middle] + b"\0" * 9 + whole[middle + 9 :]])
    with pytest.raises(CorruptFile):
        list(read_parts(stage.remote("project/big"), trees=TreesField([-1])).parts)
    file(stage)


def test_of_git_it_is_refused_by_name(stage: Stage) -> None:
    history = History()
    line = history.line(2)
    remote = RemoteRepository(stage.client, "gits", Knowledge(None, "hpss://h/gits", "gits"))
    remote.push(PushRequest([RefUpdate(MAIN, line[1])], HistorySource(history), NewRepository(GIT, KINDS)))
    with pytest.raises(Unsupported, match="git sha1"):
        read_parts(remote, refs=[MAIN])
    with pytest.raises(Unsupported, match="git sha1"):
        read_parts(stage.remote("gits"), trees=TreesField([1]))


def frames(content: bytes) -> Iterator[int]:
    """Where the opening line and each frame end."""
    at = content.index(b"\n") + 1
    yield at
    while at < len(content):
        at += HEADER.size + HEADER.unpack_from(content, at)[0]
        yield at


@pytest.mark.long
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_link_that_is_cut(attempts: int) -> None:
    """All of it came, or an error; what was read before that is what it says."""

    def make() -> tuple[SimulatedNetwork, Stage]:
        stage = Stage(SimulatedNetwork(Link(1.0)))
        return stage.joint.network, stage

    came: list[int] = []

    def read(stage: Stage) -> int:
        got: dict[bytes, bytes] = {}
        for part in read_parts(stage.remote("project/big"), trees=TreesField([-1])).parts:
            got.update({record.key: record.text for record in part.records if record.kind == TEXT})
        assert got == expected(BIG, *HISTORY.trees[BIG])
        return len(got)

    def check(trial: Trial[Stage]) -> None:
        assert trial.error is None or isinstance(trial.error, ConnectionLost)
        came.append(trial.error is None)
        trial.state.client.close()
        trial.state.joint.network.clock.run()
        assert read(trial.state) == 4

    lost = (ConnectionLost, RemoteProtocolError)
    cut_everywhere(make, read, check, lost=lost, attempts=attempts, frames=frames, inside=12)
    assert {True, False} == set(came)
