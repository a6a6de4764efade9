"""bench.bulk, bench.cold, bench.media, bench.near, bench.predicted, cli.operations: they run on small numbers, and
leave nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import bulk, cold, links, media, near, predicted
from bench.links import client, server
from benches import bench
from sshd import Sshd

from netem.link import Link
from netem.packets.errors import Unavailable
from netem.packets.network import Packets
from netem.run import Crossing
from smartserver.cli.errors import CommandError
from smartserver.cli.histories import generate
from smartserver.cli.operations import Operations
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media import tcp
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.repository import RemoteRepository

pytestmark = [pytest.mark.packets, pytest.mark.interop]

Start = Callable[..., Packets]


def test_bulk(start: Start, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Link(0.0)).close()  # or skip
    # What so little takes is the time Python takes to start.
    monkeypatch.setattr(bulk, "SHARE", 0.0)
    result = bench(temporary, "bulk", "--size", "100kB", "--link", "4ms", "100mbit")
    assert (result.exit_code, result.stderr.count("wrong")) == (0, 0)
    assert "bare TCP" in result.stdout
    for what in ("push, 100 Mbit/s, 4 ms", "clone, 100 Mbit/s, 4 ms", "  largest process of client, of server"):
        assert [line for line in result.stdout.splitlines() if line.startswith(what) and line.endswith("ok")]


def test_bulk_that_is_too_slow_or_asked_for_wrongly(
    start: Start, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(Link(0.0)).close()  # or skip
    monkeypatch.setattr(bulk, "SHARE", 1e6)
    result = bench(temporary, "bulk", "--size", "1kB", "--link", "4ms", "100mbit")
    assert result.exit_code == 1
    assert "MISSED" in result.stdout
    with pytest.raises(CommandError, match="fast"):
        bench(temporary, "bulk", "--link", "4ms", "fast")


def test_cold(start: Start, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Link(0.0)).close()  # or skip
    monkeypatch.setattr(cold, "LARGE", 20_000)
    monkeypatch.setattr(cold, "LARGE_RTT", 0.1)
    monkeypatch.setattr(cold, "PAUSE", 0.1)
    monkeypatch.setattr(cold, "HELD_PUSHES", 1)
    result = bench(temporary, "cold")
    assert sum("push of 20.0 KB by the library" in line for line in result.stdout.splitlines()) == 6


def test_media(start: Start, sshd: Sshd, temporary: Path) -> None:
    start(Link(0.0)).close()  # or skip
    pytest.importorskip("breezy.bzr")
    result = bench(temporary, "media", "--repeat", "1", "--rtt", "20ms")
    lines = {line[:46].strip(): line[46:].split() for line in result.stdout.splitlines()}
    counted = {what: int(words[0]) for what, words in lines.items() if "push, " in what}
    ours = {what: count for what, count in counted.items() if "hpss" in what}
    assert {count for what, count in ours.items() if what.endswith("second")} == {1}
    assert [count for what, count in ours.items() if what.endswith("first") and "ssh" not in what] == [2, 1, 3, 2, 3]
    assert lines["git push, hpss://, first"][-1] == "ok"
    assert counted["git push, git over ssh, ControlPersist, second"] == 3


def test_near(start: Start, sshd: Sshd, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Link(0.0)).close()  # or skip
    monkeypatch.setattr(near, "COMMANDS", {"ls-remote": near.COMMANDS["ls-remote"]})
    monkeypatch.setattr(near, "most", lambda other, rtt, seconds: seconds * (other is not media.GIT) * 1e6)
    result = bench(temporary, "near", "--repeat", "1", "--rtt", "4ms")
    cells = dict(line.split(" | ")[1:3] for line in result.stdout.splitlines() if line.startswith("| ls-remote"))
    assert [name for name, cell in cells.items() if "MISSED" in cell] == ["hpss://"]
    assert [float(cell.partition(" ")[0]) > 0 for cell in cells.values()] == [True] * 6
    assert result.stderr.splitlines()[1:] == ["wrong: ls-remote at 4 ms: hpss:// is slower than git://"]
    assert result.exit_code == 1


def test_predicted(start: Start, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Link(0.0)).close()  # or skip
    monkeypatch.setattr(predicted, "BAR", 1e6)  # Here other tests run beside it.
    source = tmp_path / "source"
    generate(source, os.environ, count=9)
    result = bench(temporary, "predicted", str(source), "--link", "200ms", "10mbit", "--repeat", "1")
    assert (result.exit_code, result.stderr.count("wrong")) == (0, 0)
    for what in ("push, 200 ms, 10 Mbit/s", "clone, 200 ms, 10 Mbit/s"):
        (line,) = [line for line in result.stdout.splitlines() if line.startswith(what)]
        assert line.endswith("ok")
        assert float(line.removeprefix(what).split()[0]) > 0.4


RTTS = (0.2, 0.6)
"""Of which the difference tells round trips; both are long beside what a busy machine is late by."""


@pytest.mark.unbanned("a bench does the same many times, each time as an operation of its own")
def test_operations_are_one_round_trip_by_counts_and_by_the_clock(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(Link(0.0)).close()  # or skip
    (tmp_path / "served").mkdir()
    servers = [
        f"{sys.executable} -m smartserver.cli.main serve {tmp_path / 'served'} --anonymous write",
        # To force and to delete is for clients of the server's own machine.
        "netem proxy --rtt 0ms --listen {server}:4156 --to 127.0.0.1:4155",
    ]
    with Crossing(Packets(Link(0.004), backend="veth"), servers) as crossing:
        network = crossing.network
        monkeypatch.setattr(tcp, "_open", lambda places, fast_open: (network.connect(places[0][4][1]), ()))
        with Client(lambda: TcpMedium(network.server_address, 4156), agent="test") as client:
            remote = RemoteRepository(client, "project", Knowledge(None, "hpss://server/project"))
            shortest: list[dict[str, float]] = [{}, {}]
            for _ in range(5):  # a pause of the machine makes a run longer and never shorter
                for rtt, found in zip(RTTS, shortest, strict=True):
                    network.change(Link(rtt))
                    for row in Operations(client, remote, network, 1).rows():
                        assert row.round_trips == 1, row.operation
                        found[row.operation] = min(row.milliseconds / 1000, found.get(row.operation, 1e9))
                short, long = shortest
                slopes = {name: round((long[name] - short[name]) / (RTTS[1] - RTTS[0])) for name in short}
                if set(slopes.values()) == {1}:
                    break
    assert "push one commit" in slopes
    assert slopes == dict.fromkeys(slopes, 1)


def test_operations_leave_out_what_the_server_allows_nobody_from_afar(start: Start, tmp_path: Path) -> None:
    """The second time the branch is there, which could not be deleted."""
    ours = [sys.executable, "-m", "smartserver.cli.main"]
    network = start(Link(0.0))
    listen = ["--anonymous", "write", "--listen", f"{network.server_address}:4155"]
    with server(network, [*ours, "serve", str(tmp_path), *listen], tmp_path, os.environ):
        for _ in range(2):
            words = [*ours, "ping", f"hpss://{network.server_address}/x", "--operations", "-c", "1"]
            with client(network, words, tmp_path, os.environ) as running:
                ended = running.wait()
            assert ended.status == 0, ended.stderr
            rows = {line[:24].strip(): line[24:].split() for line in ended.stdout.splitlines()[1:]}
            refused = [what for what, found in rows.items() if found == ["not", "allowed"]]
            assert refused == ["push a new branch", "delete a branch"]
            assert [found[0] for what, found in rows.items() if what not in refused] == ["1"] * 7
            assert ended.stderr == (
                "not allowed there (anonymous users may do that from this machine only): "
                "push a new branch, delete a branch; refs/heads/smartserver-bench stays\n"
            )


def test_where_there_is_no_packet_network(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(link: object) -> None:
        raise Unavailable("no packet network here: this is a test")

    monkeypatch.setattr(links, "Packets", none_here)
    with pytest.raises(CommandError, match="no packet network here: this is a test"):
        bench(temporary, "cold")
    assert list(temporary.iterdir()) == []
