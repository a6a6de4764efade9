"""A server that is told to stop finishes the requests that it has begun, accepts no new ones, and exits."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agents import children
from builders import MAIN, History
from history_sources import HistorySource
from pushing import connected, count_segments, push
from serving import PATIENCE, Server, server_refs, wait_until

from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.pipe import PipeMedium
from smartserver.client.medium import ConnectionLost, MediumError
from smartserver.client.repository import RemoteRepository
from smartserver.client.updates import Outcome
from smartserver.errors import OutcomeUnknown

pytestmark = pytest.mark.sockets

BIG = 24 << 20
"""More bytes than the buffers between two processes hold."""


def big_history(commits: int = 24, size: int = BIG) -> tuple[History, bytes]:
    """Return a history of a few incompressible megabytes, and its tip."""
    history, content = History(), random.Random("big")
    tip: tuple[bytes, ...] = ()
    for number in range(commits):
        tip = (history.commit({f"file{number}": content.randbytes(size // commits)}, tip),)
    return history, tip[0]


def store_big(root: Path) -> int:
    """Store a big history, and return the number of its revisions."""
    history, tip = big_history()
    with Server(root) as server, connected(server.port) as remote:
        assert push(remote, HistorySource(history), MAIN, tip).outcome is Outcome.DONE
    return len(history.parents)


def on_standard_input(folder: Path, *words: str) -> PipeMedium:
    """Start a server on standard input, which writes its process and its log to files of the folder."""
    script = f'echo $$ >{folder}/number; exec "$@" 2>{folder}/log'
    return PipeMedium(["sh", "-c", script, "sh", sys.executable, "-m", "smartserver.cli.main", "serve", *words])


def refuses(port: int) -> bool:
    """Tell whether a server refuses new connections."""
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except (ConnectionRefusedError, ConnectionResetError):  # The latter as it stops to listen.
        return True
    return False


def test_a_held_connection_holds_up_nothing(tmp_path: Path) -> None:
    """A client may keep its connection for the next command."""
    with (
        Server(tmp_path) as server,
        socket.create_connection(("127.0.0.1", server.port)),
        connected(server.port) as remote,
    ):
        history = History()
        assert push(remote, HistorySource(history), MAIN, history.commit({"a": b"b"})).outcome is Outcome.DONE
        server.process.terminate()
        assert server.process.wait(PATIENCE / 4) == 0


ON_ITS_TERMINAL = """
import fcntl, termios
from smartserver.cli.main import main
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
main()
"""


def test_the_end_of_its_terminal_is_one_signal(tmp_path: Path) -> None:
    """The shell signals the end once more, and the terminal can no longer be written to."""
    count = store_big(tmp_path)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_ITS_TERMINAL, "serve", str(tmp_path), "--listen", "127.0.0.1:0"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        said = os.fdopen(ours, "rb", 0)
        found = re.search(rb"hpss://127\.0\.0\.1:(\d+)/", said.readline())
        assert found is not None
        with connected(int(found[1])) as remote:
            pulled = remote.pull()
            said.close()
            wait_until(lambda: refuses(int(found[1])), "it takes no more connections")
            process.send_signal(signal.SIGHUP)
            assert count_segments(pulled.body) == pulled.result.segments == count
        assert process.wait(PATIENCE / 4) == 0
    finally:
        process.kill()
        process.wait()


def test_on_standard_input_too_what_has_begun_is_finished(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    count = store_big(tmp_path / "root")
    medium = on_standard_input(tmp_path, str(tmp_path / "root"), "--stdio")
    with Client(lambda: medium) as client:
        pulled = RemoteRepository(client, "p", Knowledge(None, "")).pull()
        os.kill(int((tmp_path / "number").read_text()), signal.SIGHUP)
        wait_until(lambda: "stopping: 1 connection has 30 s" in (tmp_path / "log").read_text(), "it says so")
        assert count_segments(pulled.body) == pulled.result.segments == count


def test_behind_a_link_what_has_begun_is_given_up(tmp_path: Path) -> None:
    """The signal is the ^C of the one command that it serves: it begins nothing after that, and writes nothing."""
    history, first = big_history(1, 100)
    second = history.commit({"a": b"b"}, (first,))
    (tmp_path / "root").mkdir()
    with (
        Server(tmp_path / "root", "--allow-vfs") as server,
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor(2) as threads,
    ):
        with connected(server.port) as remote:
            assert push(remote, HistorySource(history), MAIN, first).outcome is Outcome.DONE
        medium = on_standard_input(tmp_path, "--stdio", f"vfs://127.0.0.1:{listener.getsockname()[1]}/")

        def stopped() -> None:
            """Let no bytes pass between the two before the signal has ended the session."""
            near, _ = listener.accept()
            with near, socket.create_connection(("127.0.0.1", server.port)) as far:
                process = int((tmp_path / "number").read_text())
                assert listens(process)
                os.kill(process, signal.SIGINT)
                wait_until(lambda: not listens(process), "it has given up")
                back = threads.submit(passed_on, far, near)
                passed_on(near, far)
                back.result()

        between = threads.submit(stopped)
        with Client(lambda: medium) as client:
            remote = RemoteRepository(client, "p", Knowledge(None, ""))
            with pytest.raises((MediumError, OutcomeUnknown)):
                push(remote, HistorySource(history), MAIN, second)
        between.result()
    assert (tmp_path / "log").read_text() == ""
    assert server_refs(tmp_path / "root", "p") == {MAIN.decode(): first.hex()}


def listens(process: int) -> bool:
    """Tell whether the server's reactor still waits on standard input."""
    watched = "".join(each.read_text() for each in Path(f"/proc/{process}/fdinfo").iterdir())
    return any(line.split()[:2] == ["tfd:", "0"] for line in watched.splitlines())


def passed_on(source: socket.socket, target: socket.socket) -> None:
    """Pass all bytes on, until the end."""
    while got := source.recv(1 << 16):
        target.sendall(got)
    with contextlib.suppress(OSError):  # Gone already.
        target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(("sent", "options"), [(signal.SIGTERM, ("--workers", "2")), (signal.SIGINT, ())])
def test_a_second_signal_waits_no_longer(tmp_path: Path, sent: signal.Signals, options: tuple[str, ...]) -> None:
    """The first signal prints the reason for the wait. A terminal's signal reaches all processes, and counts once."""
    store_big(tmp_path)
    with Server(tmp_path, *options) as server:

        def send() -> None:
            for process in (server.process.pid, *children(server.process.pid)):
                with contextlib.suppress(ProcessLookupError):  # A worker may end by what the first one was sent.
                    os.kill(process, sent)

        with connected(server.port) as remote:
            pulled = remote.pull()
            send()
            wait_until(lambda: any("stopping: 1 connection has 30 s" in line for line in server.log), "it says so")
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(0.5)
            send()
            assert server.process.wait(PATIENCE / 4) == 0
            with pytest.raises(ConnectionLost):
                count_segments(pulled.body)
        wait_until(lambda: any("cut off (connections: 1)" in line for line in server.log), "it says that it did")
