"""bench.peers, and how an end is judged: each operation in a tool's own words."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench.compare import NAMES, PEERS
from bench.links import Done, Line, ProxyLine
from bench.peers import base
from bench.peers.base import CLIENT, OPERATIONS, Act, Peer, Place, wrongs
from bench.peers.git import Git
from bench.report import Runs

from netem.link import Link
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import LinkCost, Workspace


class Recorded(Place):
    """A site where nothing is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, name: str) -> str:
        return f"scheme://host:1/{name}"

    def run(self, user: str, *command: str, folder: str | None = None) -> str:
        return f"{user} {folder} {' '.join(command)}"


def acts(peer: type[Peer], folder: Path) -> Mapping[str, Act]:
    return peer(Recorded(folder), folder).acts()


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_each_operation_is_one_of_all(peer: type[Peer], tmp_path: Path) -> None:
    found = acts(peer, tmp_path)
    assert set(found) <= set(OPERATIONS)
    assert set(OPERATIONS) - set(found) <= {base.NEW_REPOSITORY}
    assert set(OPERATIONS[: len(peer.earlier)]) in (set(), set(found))
    for act in found.values():
        assert act.command[0] in (*peer.programs, sys.executable)
    assert found[base.DIVERGED].status is None
    assert found[base.DIVERGED].says


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_server_listens_where_it_is_told(peer: type[Peer], tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    command = " ".join(peer(Recorded(tmp_path / "live"), tmp_path).server("10.0.0.9", 4321))
    assert "10.0.0.9" in command
    assert "4321" in command


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    assert Git.lacking(str(tmp_path)) == ["git"]
    assert Git.lacking(os.environ["PATH"]) == []


def test_names_are_all_different() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    ("act", "status", "stderr", "wrong"),
    [
        (Act(()), 0, "", ""),
        (Act(()), 1, "why", "status 1, expected 0: why"),
        (Act((), status=1), 1, "", ""),
        (Act((), status=1), 0, "", "status 0, expected 1: "),
        (Act((), status=None, says="rejected"), 0, "rejected", "status 0, expected a refusal: rejected"),
        (Act((), status=None, says="rejected"), 255, "! [rejected]", ""),
        (Act((), status=None, says="rejected"), 255, "no route", "expected 'rejected', it said: no route"),
    ],
)
def test_how_a_command_ends_is_judged(act: Act, status: int, stderr: str, wrong: str) -> None:
    assert list(wrongs(act.status, act.says, status, stderr)) == ([wrong] if wrong else [])


def test_a_cost_is_the_run_in_the_middle_and_the_shortest() -> None:
    runs = [(0.1, 4, 0.9), (0.1, 9, 0.5), (0.2, 4, 0.9), (0.3, 4, 1.3)]
    cost = Runs([(rtt, LinkCost(trips, seconds, 0, 0)) for rtt, trips, seconds in runs])
    assert cost.rounds == 4
    assert cost.seconds(0.1) == 0.5
    assert cost.slope is not None
    assert cost.slope.rounds == pytest.approx(4)


class Still(Line):
    """A link on which every command fails."""

    name = about = lateness = "still"

    def reserve(self) -> None:
        self.host, self.port = "host", 7

    def serve(self, *_: object) -> None:
        raise AssertionError

    def run(self, *_: object) -> Done:
        return Done(3, 0.1, "", "no such thing", 0.0)


def test_a_place_is_put_back_to_what_it_was() -> None:
    with Workspace("test") as work:
        line = Still()
        line.reserve()
        place = Place(work, work.folder, Git, line, "/bin")
        (place.served / "a").write_text("first")
        (place.folder / CLIENT).mkdir()
        inode = place.served.stat().st_ino
        place.keep("first")
        (place.served / "a").write_text("second")
        (place.served / "b").mkdir()
        (place.folder / "clone").symlink_to("nowhere")
        place.keep("second")
        place.put_back("first")
        assert sorted(each.name for each in place.folder.rglob("*")) == ["a", CLIENT, "served"]
        assert (place.served / "a").read_text() == "first"
        assert place.served.stat().st_ino == inode, "a server that stands there would be lost"
        place.put_back("second")
        assert (place.folder / "clone").is_symlink()
        assert place.url("x") == "git://host:7/x"
        users = [place.environment(user)["XDG_CACHE_HOME"] for user in (CLIENT, base.OTHER)]
        assert len(set(users)) == 2
        assert all(cache.startswith(str(place.folder)) for cache in users)
        with pytest.raises(CommandError, match="git pull: status 3: no such thing"):
            place.run(CLIENT, "git", "pull")


def test_the_proxy_is_in_front_of_a_server_it_starts() -> None:
    with ProxyLine() as line:
        line.reserve()
        assert line.host == "127.0.0.1"
        line.network.change(Link(0.01))
        done = line.run(["sh", "-c", "echo out; echo err >&2; exit 5"], Path.cwd(), os.environ)
        assert (done.status, done.stdout, done.stderr) == (5, "out\n", "err\n")
        assert not line.network.take().used
