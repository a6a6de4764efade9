"""Two servers behind HAProxy: one ends while pushes go on, and no client is told."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import MAIN, History, Repeatable
from haproxy import Haproxy
from history_sources import HistorySource
from needs import FAKETIME, needs
from pushing import connected, push
from serving import PATIENCE, Server, User, check_store, server_refs, wait_until, write_history
from versitygw import S3

from smartserver.client.updates import Outcome

pytestmark = [pytest.mark.sockets, pytest.mark.interop, pytest.mark.long]

ANEW = """
import os, sys
os.execv(sys.executable, [sys.executable, "-m", "smartserver.cli.main", *sys.argv[1:]])
"""
"""A program of its own, which loads the libraries that its environment names."""

METRICS = ("--metrics", "127.0.0.1:0")


def port_of(server: Server) -> int:
    assert server.page("healthz") == (200, "alive\n")
    return int(server.pages.rpartition(":")[2])


def is_in_use(server: Server) -> bool:
    return "smartserver_open_connections 1.0" in server.page("metrics")[1]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    (tmp_path / "root").mkdir()
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Server(tmp_path / "root", *METRICS)) for _ in range(2)]


@needs("haproxy")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_ends_while_pushes_go_on(tmp_path: Path, servers: list[Server], number: signal.Signals) -> None:
    root, user, history = tmp_path / "root", User(tmp_path / "user"), History()
    commits = write_history(user, "w", 500, seed="behind", size=100)
    tip = history.commit({name: Repeatable()(1 << 18) for name in ("one", "two")})
    tip = history.commit({name: Repeatable()(1 << 18) for name in ("three", "four")}, (tip,))
    ended: list[Server] = []

    def end() -> None:
        """End the server that has half of a push."""
        if not ended:
            wait_until(lambda: any(map(is_in_use, servers)), "a push")
            ended.extend(filter(is_in_use, servers))
            ended[0].process.send_signal(number)

    with Haproxy(tmp_path, [(each.port, port_of(each)) for each in servers]) as balancer:
        url = f"hpss://127.0.0.1:{balancer.port}/g"
        with connected(balancer.port) as remote:
            assert push(remote, HistorySource(history, halfway=end), MAIN, tip).outcome is Outcome.DONE
        (server,) = ended
        after = 0
        for commit in commits:  # By git, until the server is gone, and then twice more.
            gone = server.process.poll() is not None
            if number is signal.SIGTERM and not gone:
                with contextlib.suppress(OSError):
                    assert server.page("readyz") == (503, "the server is stopping\n")
            user.git("push", "-q", url, f"{commit}:{MAIN.decode()}", folder="w").worked()
            assert server_refs(root, "g") == {MAIN.decode(): commit}
            after += gone
            if after == 2:
                break
        assert after == 2
    assert server.process.wait(PATIENCE) == (-number if number is signal.SIGKILL else 0)
    assert server_refs(root, "p") == {MAIN.decode(): tip.hex()}
    for name in "gp":
        check_store(root, name)


@needs("libfaketime")
def test_a_clock_that_an_s3_store_refuses(s3: S3, tmp_path: Path) -> None:
    """An hour: it is told in a line, and nothing is made. Ten minutes are no matter."""
    clock = tmp_path / "clock"
    clock.write_text("+10m")
    user = User(tmp_path / "user")
    write_history(user, "w", 1, seed="clock", size=100)
    environment = {
        "LD_PRELOAD": FAKETIME[0],
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_TIMESTAMP_FILE": str(clock),
    }
    options = (*METRICS, "--cache-dir", str(tmp_path / "cache"))
    with Server(f"s3://{s3.bucket()}/code", *options, program=("-c", ANEW), environment=environment) as server:
        user.git("push", "-q", server.url("p"), "main", folder="w").worked()
        wait_until(lambda: server.page("readyz")[0] == 200, "ten minutes are no matter")
        clock.write_text("+1h")
        wait_until(lambda: server.page("readyz")[0] == 503, "what the store answered before counts no more")
        for said in (server.page("readyz")[1], user.git("push", server.url("q"), "main", folder="w").failed("push")):
            assert "the clock of this machine differs too much from that of the S3 store: set it" in said
        clock.write_text("+10m")
        wait_until(lambda: server.page("readyz")[0] == 200, "it is set")
        user.git("clone", "-q", server.url("p"), "back").worked()
