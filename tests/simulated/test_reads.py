"""Reads of trees and logs on a link: one round trip each; what a damaged pack leaves of one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bzr_builders import TRUNK, BzrHistory
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.repository import RemoteRepository
from smartserver.errors import CorruptFile, NoSuchPart
from smartserver.records.browse import ContentStream, LogSelector, NodeType, Selector, TreeSelector, encode_selector
from smartserver.records.model import Tip
from smartserver.store.open_pack import pack_path
from smartserver.vcs.bzr.kinds import TEXT
from smartserver.verbs.server_ping import PingRequest, server_ping

BUDGETS = tomllib.loads((Path(__file__).parent.parent / "budgets.toml").read_text(encoding="utf-8"))["reads"]

HISTORY = BzrHistory()
LINE = HISTORY.line(6)
BIG = HISTORY.commit({**HISTORY.trees[LINE[5]], b"big": b"".join(b"%d," % (n * n) for n in range(30_000))}, [LINE[5]])
ALL = TreeSelector(deep=True, texts=True)


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

    def read(self, selector: Selector, path: str = "project/trunk") -> ContentStream:
        remote = RemoteRepository(self.client, path, Knowledge(None, f"hpss://h/{path}", path), below=True)
        return ContentStream(remote.read(encode_selector(selector)).body)

    def texts(self, selector: TreeSelector = ALL, path: str = "project/trunk") -> dict[bytes, bytes]:
        """The files of a tree by their paths."""
        stream = self.read(selector, path)
        return {
            entry.path: b"".join(stream.text())
            for entry in stream.entries(texts=True)
            if entry.type is not NodeType.FOLDER
        }


@pytest.fixture
def stage(network: SimulatedNetwork) -> Iterator[Stage]:
    stage = Stage(network)
    stage.connect()
    with stage.client:
        yield stage


def file(stage: Stage) -> None:
    selector = TreeSelector(path=b"README", texts=True)
    assert stage.texts(selector) == {b"": HISTORY.trees[LINE[5]][b"README"]}


def folder(stage: Stage) -> None:
    stream = stage.read(TreeSelector(LINE[3].decode(), deep=True), "project/trunk/src")
    assert [entry.path for entry in stream.entries(texts=False)] == [b"", b"a.py", b"deep", b"deep/b.py"]


def log(stage: Stage) -> None:
    entries = list(stage.read(LogSelector("4", "2", changes=True)).log())
    assert [entry.id.encode() for entry in entries] == [LINE[3], LINE[2]]
    assert [entry.changes for entry in entries] == [[("M", b"src/a.py")]] * 2


def either(stage: Stage) -> None:
    for path, came in (("project/trunk", 6), ("project/trunk/README", 1)):
        assert len(list(stage.read(LogSelector(), path).log())) == came
        stage.joint.network.take() if came == 6 else None


def refused(stage: Stage) -> None:
    with pytest.raises(NoSuchPart):
        stage.read(TreeSelector("99"))


READS: dict[str, Callable[[Stage], None]] = {
    "a file": file,
    "a folder": folder,
    "a log from number to number, with what each changed": log,
    "what the path turns out to be": either,
    "nothing, refused": refused,
}


def test_every_read_has_a_budget() -> None:
    assert READS.keys() == BUDGETS.keys()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.max_round_trips(name)) for name in READS])
def test_read(stage: Stage, name: str) -> None:
    READS[name](stage)


def test_the_connection_goes_on_after_a_body(stage: Stage) -> None:
    assert stage.texts(path="project/big") == HISTORY.trees[BIG]
    file(stage)
    assert stage.joint.network.counts().rounds <= 3  # The first body is larger than one window.
    assert len(stage.joint.shells) == 1


def test_a_damaged_pack_ends_the_body(stage: Stage) -> None:
    """The error names the pack, and the connection serves on."""
    site = stage.joint.site.find("project")
    place = f"project/{pack_path(site.repository.snapshot().state.packs[1].name)}"
    whole = stage.joint.storage.get(place)
    at = site.repository.snapshot().first(TEXT, HISTORY.text(b"big", BIG))
    assert at is not None
    middle = at.frame_offset + at.frame_length // 2
    stage.joint.storage.delete(place)
    stage.joint.storage.put(place, [whole[:middle] + b"\0" * 9 + whole[middle + 9 :]])
    with pytest.raises(CorruptFile):
        stage.texts(path="project/big")
    file(stage)
