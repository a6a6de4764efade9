"""trace.explain, over real TCP: sockets at either end that delay small packets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import MAIN, History
from history_sources import HistorySource
from needs import needs
from pushing import connected, count_segments, push
from serving import Server

from smartserver.cli.session import client_for
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.repository import RemoteRepository
from smartserver.client.session import Tool
from smartserver.trace.explain import lines
from smartserver.trace.wait import Trace, traces

pytestmark = [
    pytest.mark.sockets,
    needs("Linux"),
]

DELAYING = """
from smartserver.cli.main import main
from smartserver.server.tcp import TcpProtocol
made = TcpProtocol.connectionMade
def connection_made(protocol):
    made(protocol)
    protocol.transport.setTcpNoDelay(False)
TcpProtocol.connectionMade = connection_made
main()
"""
"""A server that leaves Nagle's algorithm on."""


def record(server: Server, path: Path, do: Callable[[RemoteRepository], object]) -> Trace:
    """Record the trace of a command that calls `do`."""
    environment = {"SMARTSERVER_AGENT": "0"}
    with client_for(server.url("p"), {f"hpss-json={path}"}, Tool("planted"), environment) as (client, place):
        do(RemoteRepository(client, place.path, Knowledge(None, server.url("p"))))
    (found,) = traces(path.read_bytes().splitlines())
    return found


def pull(remote: RemoteRepository) -> None:
    assert count_segments(remote.pull().body) == 1


def delays(trace: Trace) -> list[str]:
    """Return the lines of the explanation on delayed packets."""
    return [line for line in lines(trace) if "Nagle" in line]


@pytest.fixture
def source() -> tuple[HistorySource, bytes]:
    """A history, and its only revision."""
    history = History()
    (tip,) = history.line(1)
    return HistorySource(history), tip


def test_nothing_delays_packets_unless_told_to(tmp_path: Path, source: tuple[HistorySource, bytes]) -> None:
    with Server(tmp_path) as server:
        with connected(server.port) as remote:
            push(remote, source[0], MAIN, source[1])
        trace = record(server, tmp_path / "trace", pull)
    assert [each.delays for each in trace.links] == [0]
    assert [each.counts["tcp_delays"] for each in trace.requests] == [0]
    assert delays(trace) == []


def test_a_client_that_delays_packets(
    tmp_path: Path, source: tuple[HistorySource, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up = TcpMedium._set_up

    def leave_on(medium: TcpMedium) -> None:
        set_up(medium)
        medium._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

    monkeypatch.setattr(TcpMedium, "_set_up", leave_on)
    with Server(tmp_path) as server:
        trace = record(server, tmp_path / "trace", lambda remote: push(remote, source[0], MAIN, source[1]))
    (line,) = delays(trace)
    assert line.startswith("  TCP: this program's socket delays small packets")


def test_a_server_that_delays_packets(tmp_path: Path, source: tuple[HistorySource, bytes]) -> None:
    with Server(tmp_path, program=("-c", DELAYING)) as server:
        with connected(server.port) as remote:
            push(remote, source[0], MAIN, source[1])
        trace = record(server, tmp_path / "trace", pull)
    (line,) = delays(trace)
    assert line.startswith("  TCP: the server's socket delays small packets")
