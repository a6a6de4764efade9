"""cli.bench.bulk, cli.bench.cold, cli.bench.held: they run on small numbers, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benches import bench

from netem.link import Link
from netem.packets.errors import Unavailable
from netem.packets.network import Packets
from smartserver.cli.bench import bulk, cold, link
from smartserver.cli.errors import CommandError

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
    result = bench(temporary, "cold", "--repeat", "1", "--rtt", "20ms")
    lines = {line.rpartition("  ")[0].strip() or line: line for line in result.stdout.splitlines()}
    fresh = [line.split() for line in lines.values() if line.startswith("git push of one revision")]
    assert [(words[-5], words[-1]) for words in fresh] == [("2", "ok"), ("1", "ok")]
    assert sum("push of 20.0 KB by the library" in line for line in lines.values()) == 6


def test_where_there_is_no_packet_network(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here(link: object) -> None:
        raise Unavailable("no packet network here: this is a test")

    monkeypatch.setattr(link, "Packets", none_here)
    with pytest.raises(CommandError, match="no packet network here: this is a test"):
        bench(temporary, "cold", "--repeat", "1")
    assert list(temporary.iterdir()) == []
