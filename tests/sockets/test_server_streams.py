"""server.tcp, server.stdio: a real server at the end of real streams, where the kernel decides how bytes are cut."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from builders import MAIN, History
from builders import push as store_push
from dialogs import message
from history_sources import NEW, HistorySource
from pushing import push
from serving import PATIENCE, check_store, server_refs

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.pipe import PipeMedium
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.push import PushRequest
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.store.repack import FEW_PACKS, MOST_PACKS
from smartserver.store.repository import PackRepository
from smartserver.verbs.rules import Rule
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.connection import Connection, Role
from smartserver.wire.events import Request
from smartserver.wire.messages import encode
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets

PING = encode(message((server_ping, PingRequest()), path=""))


def test_ipv6(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return  # A machine without IPv6 has nothing to show here.
    command = [sys.executable, "-m", "smartserver.cli.main", "serve", str(tmp_path), "--listen", "[::1]:0"]
    process = subprocess.Popen([*command, "--anonymous", "write"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = int(line.split("hpss://[::1]:")[1].split("/")[0])
        with Client(lambda: TcpMedium("::1", port)) as client:
            client.call(server_ping, PingRequest())
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


# -- standard input and output


def serve_streams(root: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "smartserver.cli.main", "serve", str(root), "--stdio"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_pipe_to_a_served_folder_may_do_what_its_user_may(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "smartserver.cli.main", "serve", str(tmp_path), "--stdio"]
    history = History()
    line = history.line(4)
    noise = history.commit({"noise": random.Random(3).randbytes(3_000_000)}, [line[3]])
    pipes: list[PipeMedium] = []

    def connect() -> PipeMedium:
        pipes.append(PipeMedium(command))
        return pipes[-1]

    with Client(connect) as client:
        remote = RemoteRepository(client, "p", Knowledge(None, "x"))
        assert push(remote, HistorySource(history), MAIN, noise).outcome is Outcome.DONE
        updates = [RefUpdate(MAIN, line[0], Rule.FORCE), RefUpdate(b"refs/heads/x", noise)]
        assert [done.outcome for done in remote.push(PushRequest(updates, HistorySource(history), NEW)).refs] == [
            Outcome.DONE
        ] * 2
        assert push_none(remote, history) is Outcome.DONE
        assert remote.pull(ids=[line[3]], refs=[]).result.segments == 4
    assert pipes[0]._process.wait(PATIENCE) == 0
    assert server_refs(tmp_path, "p") == {MAIN.decode(): line[0].hex()}
    check_store(tmp_path, "p")


def test_packs_are_joined_by_a_server_of_one_push_after_its_client_left(tmp_path: Path) -> None:
    """Its process lasts until they are, so that the packs of a site that is reached by ssh alone are as few."""
    history = History()
    line = history.line(MOST_PACKS + 1)
    repository = PackRepository(LocalTransport(tmp_path), "p")
    for number, revision in enumerate(line[:-1]):
        store_push(repository, history, [revision], {MAIN: revision}, age=number)
    assert len(repository.snapshot().state.packs) == MOST_PACKS
    pipe = PipeMedium([sys.executable, "-m", "smartserver.cli.main", "serve", str(tmp_path), "--stdio"])
    with Client(lambda: pipe) as client:
        remote = RemoteRepository(client, "p", Knowledge(None, "x"))
        assert push(remote, HistorySource(history), MAIN, line[-1]).outcome is Outcome.DONE
    assert pipe._process.wait(PATIENCE) == 0
    assert len(PackRepository(LocalTransport(tmp_path), "p").snapshot().state.packs) <= FEW_PACKS
    check_store(tmp_path, "p")


def push_none(remote: RemoteRepository, history: History) -> Outcome:
    (done,) = remote.push(PushRequest([RefUpdate(b"refs/heads/x", None)], HistorySource(history), NEW)).refs
    return done.outcome


@pytest.mark.parametrize("ended", ["input", "output", "both at once"])
def test_a_client_that_is_gone_ends_it(tmp_path: Path, ended: str) -> None:
    """A server that nobody reads any more must not stay behind."""
    process = serve_streams(tmp_path)
    assert process.stdin is not None
    assert process.stdout is not None
    client = Connection(Role.CLIENT)
    for number in (1, 2):
        process.stdin.write(client.send(Request(number, PING)))
        process.stdin.flush()
        assert process.stdout.read(16)
    if ended != "input":
        process.stdout.close()
    if ended != "output":
        process.stdin.close()
    assert process.wait(PATIENCE) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    for each in (process.stdin, process.stdout, process.stderr):
        each.close()
