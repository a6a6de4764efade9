"""cli.workers: a server of several processes."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from agents import children
from serving import PATIENCE, SMARTSERVER, Server, User, check_store, run, server_refs, write_history

pytestmark = pytest.mark.sockets


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    root = tmp_path / "root"
    root.mkdir()
    with Server(root, "--workers", "2") as made:
        yield made


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def opened(process: int, kind: str) -> set[str]:
    """What a process has open of a kind: `socket`, or `anon_inode` once it waits for connections."""
    found = set()
    for each in Path(f"/proc/{process}/fd").iterdir():
        try:
            found.add(os.readlink(each))
        except OSError:
            continue
    return {name for name in found if name.startswith(f"{kind}:")}


def test_all_of_them_serve(server: Server) -> None:
    """A worker that is stopped accepts nothing: the other one does."""
    found = children(server.process.pid)
    for stopped, other in (found, reversed(found)):
        until(partial(opened, other, "anon_inode"))
        before = opened(other, "socket")
        os.kill(stopped, signal.SIGSTOP)
        try:
            with socket.create_connection(("127.0.0.1", server.port)):
                until(partial(has_more, other, before))
        finally:
            os.kill(stopped, signal.SIGCONT)


def has_more(process: int, before: set[str]) -> bool:
    """Whether it has accepted a connection."""
    return opened(process, "socket") > before


def test_what_one_stores_all_know(server: Server, tmp_path: Path) -> None:
    users = [User(tmp_path / f"user{number}") for number in range(6)]
    for number, each in enumerate(users):
        write_history(each, "a", 3, seed=str(number), size=100)

    def push(number: int) -> str:
        users[number].git("push", "-q", server.url("project"), f"main:refs/heads/b{number}", folder="a").worked()
        return users[number].tip("a")

    with ThreadPoolExecutor() as pool:
        pushed = list(pool.map(push, range(len(users))))
    assert server_refs(server.root, "project") == {f"refs/heads/b{number}": tip for number, tip in enumerate(pushed)}
    for each in users:
        seen = each.git("ls-remote", server.url("project")).worked().out
        assert all(tip in seen for tip in pushed)
    check_store(server.root, "project")


def test_one_that_is_killed_is_replaced(server: Server) -> None:
    first, second = children(server.process.pid)
    os.kill(first, signal.SIGKILL)
    until(lambda: len(children(server.process.pid)) == 2 and first not in children(server.process.pid))
    assert second in children(server.process.pid)
    assert f"worker {first} ended with signal 9: another one takes its place" in "".join(server.log)
    os.kill(second, signal.SIGSTOP)
    try:
        assert run(*SMARTSERVER, "list", f"hpss://127.0.0.1:{server.port}/").worked().out == ""
    finally:
        os.kill(second, signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(server: Server, number: signal.Signals) -> None:
    found = children(server.process.pid)
    os.kill(server.process.pid, number)
    server.process.wait(PATIENCE)
    assert not any(map(is_there, found))
    assert not server.log[1:]


def test_none_outlives_the_one_above(server: Server) -> None:
    found = children(server.process.pid)
    server.process.kill()
    until(lambda: not any(map(is_there, found)))


def test_one_that_cannot_start_ends_all(tmp_path: Path) -> None:
    """What is wrong is said by each, and nothing is tried for ever."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(*SMARTSERVER, "serve", str(tmp_path), "--workers", "2", "--listen", place)
    assert (done.status, done.err) == (1, f"smartserver: cannot listen on {place}: Address already in use\n")


@pytest.mark.parametrize("options", [("--metrics", "127.0.0.1:0"), ("--stdio",)])
def test_what_has_one_process_only(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(*SMARTSERVER, "serve", str(tmp_path), "--workers", "2", *options)
    assert done.status == 2
    assert "--workers" in done.err
