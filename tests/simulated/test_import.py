"""cli.importing: a folder becomes a commit, counted on the link. That of a new repository and of a changed file are in
`interop/test_git_stream_commands.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import MAIN
from simulated_joint import Joint

from netem.simulated import SimulatedNetwork
from smartserver.cli.errors import CommandError
from smartserver.cli.importing import FolderImport
from smartserver.client.knowledge import Knowledge
from smartserver.client.repository import RemoteRepository
from smartserver.verbs.repository_delete import DeleteRequest, repository_delete
from smartserver.verbs.server_ping import PingRequest, server_ping

WHO = b"A <a@example.org> "
PATH = "project"
FILES = 200


class Place:
    """A folder, a served repository, and a client on a held connection that remembers in a folder of its own."""

    def __init__(self, joint: Joint, folder: Path) -> None:
        self.joint = joint
        self.folder = folder / "files"
        self.memory = folder / "memory"
        for number in range(FILES):
            self.write(f"folder-{number % 10}/file-{number}", os.urandom(500))
        self.client = joint.client()
        self.client.call(server_ping, PingRequest())

    def write(self, path: str, content: bytes) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def remote(self, memory: Path | None = None) -> RemoteRepository:
        return self.joint.remote(PATH, self.client, Knowledge(str(memory or self.memory), PATH))

    def run(self, branch: str = "", memory: Path | None = None) -> None:
        FolderImport(str(self.folder), PATH, branch, self.remote(memory)).run(b"message", WHO)

    @property
    def tip(self) -> bytes:
        return self.joint.refs()[MAIN]


@pytest.fixture
def place(network: SimulatedNetwork, tmp_path: Path) -> Iterator[Place]:
    place = Place(Joint(network), tmp_path)
    with place.client:
        network.take()
        yield place


@pytest.fixture
def again(place: Place, network: SimulatedNetwork, capsys: pytest.CaptureFixture[str]) -> Place:
    """The same after an import, and after a change of one file."""
    place.run()
    place.write("folder-3/file-3", b"changed\n")
    capsys.readouterr()
    network.take()
    return place


@pytest.mark.max_round_trips("import, first contact")
def test_a_client_without_knowledge_asks_first(
    again: Place, network: SimulatedNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again.run(memory=tmp_path / "another")
    assert capsys.readouterr().out.endswith(": 200 files, 1 sent\n")
    assert network.counts().bytes_up < 3000


@pytest.mark.max_round_trips("import of nothing new")
@pytest.mark.parametrize("knows", [True, False])
def test_nothing_new(
    again: Place, network: SimulatedNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, knows: bool
) -> None:
    again.run()
    tip = again.tip
    capsys.readouterr()
    network.take()
    again.run(memory=None if knows else tmp_path / "another")
    assert capsys.readouterr().out == "nothing new\n"
    assert again.tip == tip


@pytest.mark.max_round_trips("import, moved meanwhile")
def test_the_branch_was_moved_meanwhile(
    again: Place, network: SimulatedNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again.write("other", b"by another")
    again.run(memory=tmp_path / "another")
    (again.folder / "other").unlink()
    network.take()
    capsys.readouterr()
    theirs = again.tip
    again.run()
    assert capsys.readouterr().out.endswith(": 200 files, 0 sent\n")
    snapshot = again.joint.site.find(PATH).repository.snapshot()
    ordinal = snapshot.ordinal(again.tip)
    assert ordinal is not None
    assert [parent.id for parent in snapshot.parents(ordinal)] == [theirs]


def test_what_is_remembered_is_not_believed_where_the_branch_was_moved(
    again: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder is as it was when it was imported: that is no reason to leave another's commit as the newest."""
    again.run()
    again.write("other", b"by another")
    again.run(memory=tmp_path / "another")
    (again.folder / "other").unlink()
    capsys.readouterr()
    again.run()
    assert capsys.readouterr().out.endswith(": 200 files, 0 sent\n")


def test_a_repository_that_was_made_again(again: Place, capsys: pytest.CaptureFixture[str]) -> None:
    again.client.call(repository_delete, DeleteRequest(), PATH)
    again.run()
    assert capsys.readouterr().out.endswith(": 200 files, 200 sent (a new repository)\n")


@pytest.mark.parametrize("name", ["a..b", "HEAD", "refs/tags/v1"])
def test_a_name_that_no_branch_has(place: Place, name: str) -> None:
    with pytest.raises(CommandError, match="cannot be a branch"):
        place.run(name)
