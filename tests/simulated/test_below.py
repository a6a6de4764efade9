"""A branch below a repository, on a link: its URL alone finds both, in one round trip, whoever was first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import KINDS, SILENT, History, Repeatable
from history_sources import HistorySource
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork
from smartserver.client.knowledge import Knowledge
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import NewRepository, Outcome, RefUpdate
from smartserver.errors import NoSuchRepository
from smartserver.records.model import HERE
from smartserver.verbs.server_ping import PingRequest, server_ping

NEW = NewRepository(SILENT, KINDS)
"""A new repository of a system whose branches may lie below each other."""


class Work:
    """A server, a held connection to it, and a folder of knowledge."""

    def __init__(self, network: SimulatedNetwork, folder: Path) -> None:
        self.history = History()
        self.line = self.history.line(8)
        self.joint = Joint(network)
        self.client = self.joint.client()
        self.source = HistorySource(self.history)
        self.folder = folder
        self.noise = Repeatable()
        self.client.call(server_ping, PingRequest())  # The connection is held from here on.
        network.take()

    def remote(self, path: str) -> RemoteRepository:
        """The remote repository as a new command would have it."""
        return RemoteRepository(self.client, path, Knowledge(str(self.folder), f"hpss://h/{path}", path), below=True)

    def push(self, path: str, tip: bytes | None, new: NewRepository | None = NEW) -> Outcome:
        return self.remote(path).push(PushRequest([RefUpdate(HERE, tip)], self.source, new)).refs[0].outcome

    def trips(self) -> float:
        rounds = self.joint.network.counts().rounds
        self.joint.network.take()
        return rounds

    def large(self, parent: bytes | None, count: int = 24) -> bytes:
        for number in range(count):
            noise = self.history.line(1, parent, f"{number}")[0]
            files = {**self.history.files(noise), "noise": self.noise(9000)}
            parent = self.history.commit(files, [noise])
        assert parent is not None
        return parent


@pytest.fixture
def work(network: SimulatedNetwork, tmp_path: Path) -> Iterator[Work]:
    work = Work(network, tmp_path)
    with work.client:
        yield work


def test_the_first_push_makes_the_repository_at_the_path_and_the_next_its_branches(work: Work) -> None:
    assert work.push("project", work.line[3]) is Outcome.DONE
    assert work.trips() == 1
    assert work.push("project/a", work.line[1]) is Outcome.DONE
    assert work.push("project/a/b", work.line[5]) is Outcome.DONE
    assert work.trips() == 2
    assert work.joint.refs() == {HERE: work.line[3], b"a": work.line[1], b"a/b": work.line[5]}
    assert work.source.planned == [4, 0, 2]


def test_a_newcomer_to_a_branch_is_told_once(work: Work, tmp_path: Path) -> None:
    tip = work.large(None)
    assert work.push("project", tip) is Outcome.DONE
    work.folder = tmp_path / "of another user"
    work.trips()
    assert work.push("project/mine", work.large(tip, 8)) is Outcome.DONE
    assert work.trips() <= 2
    assert work.source.planned[-1] == 16
    assert work.remote("project/mine").knowledge.at == "project"


def test_a_read_says_where_everything_is(work: Work) -> None:
    work.push("project", work.line[0])
    work.push("project/trunk", work.line[3])
    work.trips()
    remote = work.remote("project/trunk/src/.file")
    pulled = remote.pull([work.line[1]], [HERE])
    assert b"".join(pulled.body) == b"".join(map(work.history.segment, work.line[2:4]))
    assert (remote.knowledge.at, remote.knowledge.branch, remote.knowledge.inner) == ("project", b"trunk", "src/.file")
    assert work.trips() == 1


def test_a_repository_that_is_deleted_and_made_at_another_prefix(work: Work) -> None:
    work.push("project", work.line[0])
    work.push("project/a/trunk", work.line[3])
    work.joint.site.find("project").repository.delete(bytes(16), 0, "somebody")
    work.trips()
    with pytest.raises(NoSuchRepository):
        work.push("project/a/trunk", work.line[4], None)
    assert work.push("project/a/trunk", work.line[4]) is Outcome.DONE
    assert work.remote("project/a/trunk").knowledge.at == "project/a/trunk"
    assert work.trips() <= 3


def test_one_that_is_made_above_meanwhile(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the commit somebody makes a repository of which this is a branch."""
    site = work.joint.site
    find = site.find_below
    made: list[int] = []

    def find_late(path: str) -> object:
        found = find(path)
        if not made:
            made.append(1)
            other = work.joint.client()
            knowledge = Knowledge(None, "hpss://h/group", "group")
            push = [RefUpdate(HERE, work.line[1])]
            RemoteRepository(other, "group", knowledge, below=True).push(PushRequest(push, work.source, NEW))
        return found

    monkeypatch.setattr(type(site), "find_below", lambda self, path, may_read: find_late(path))
    assert work.push("group/trunk", work.line[3]) is Outcome.DONE
    assert work.joint.refs("group") == {HERE: work.line[1], b"trunk": work.line[3]}
