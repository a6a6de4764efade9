"""A writer of another process is stopped while it holds a repository's lock: pushes there wait, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import MAIN, History
from pushing import Source, connected, count_segments, push
from serving import PATIENCE, Server, check_store, is_tidy, server_refs, wait_until

from smartserver.client.updates import Outcome
from smartserver.server.executor import Lane
from smartserver.server.threads import THREADS
from transports.errors import Locked

pytestmark = pytest.mark.sockets

HOLDER = """
import fcntl, os, signal, sys
lock = open(sys.argv[1], "r+")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""

IMPATIENT = """
from smartserver.cli.main import main
from smartserver.store import swap
swap.LOCK_WAIT = 1.0
main()
"""
"""A server that gives up soon."""

PATIENT = """
from smartserver.cli.main import main
from smartserver.store import swap
swap.LOCK_WAIT = 1000.0
main()
"""
"""A server that does not give up while a test looks at it."""


@contextmanager
def stopped_writer(root: Path, path: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has taken the lock and does nothing any more."""
    command = [sys.executable, "-c", HOLDER, str(root / path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            _, status = os.waitpid(holder.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            yield holder
        finally:
            holder.kill()


def test_many_blocked_pushes_hold_up_no_read(tmp_path: Path) -> None:
    """More of them than there are threads of any kind; when the writer goes on, all are carried out."""
    history = History()
    (first, *lines) = history.line(1 + sum(THREADS.values()) + 4)
    refs = {b"refs/heads/%d" % number: tip for number, tip in enumerate(lines)}
    source = Source(history)

    def push_one(port: int, ref: bytes) -> Outcome:
        with connected(port) as remote:
            return push(remote, source, ref, first).outcome

    def read_one(port: int) -> int:
        with connected(port) as remote:
            return count_segments(remote.pull().body)

    with Server(tmp_path, program=("-c", PATIENT)) as server:
        with connected(server.port) as remote:
            assert push(remote, source, MAIN, first).outcome is Outcome.DONE
        # The writer ends first, whatever happens: nobody then waits for it, nor the test for whoever did.
        with ThreadPoolExecutor(len(refs) + 1) as threads, stopped_writer(tmp_path, "p") as holder:
            pushes = [threads.submit(push_one, server.port, ref) for ref in refs]
            wait_until(lambda: waiting(tmp_path / "p" / "lock", server.process.pid) >= 1, "somebody waits for the lock")
            for _ in range(2 * THREADS[Lane.QUICK]):
                assert threads.submit(read_one, server.port).result(PATIENCE) == 1
            assert not any(each.done() for each in pushes)
            holder.send_signal(signal.SIGCONT)
            assert {each.result(PATIENCE) for each in pushes} == {Outcome.DONE}
        assert server_refs(tmp_path, "p") == {MAIN.decode(): first.hex()} | {ref.decode(): first.hex() for ref in refs}
        check_store(tmp_path, "p")


def waiting(lock: Path, pid: int) -> int:
    """How often a process has a lock file open."""
    found = 0
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            found += os.readlink(f"/proc/{pid}/fd/{descriptor}") == str(lock)
        except FileNotFoundError:
            continue
    return found


def test_a_push_that_waits_in_vain_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    history = History()
    first, second = history.line(2)
    source = Source(history)
    with Server(tmp_path, program=("-c", IMPATIENT)) as server, connected(server.port) as remote:
        assert push(remote, source, MAIN, first).outcome is Outcome.DONE
        before = sorted((tmp_path / "p" / "packs").iterdir())
        with stopped_writer(tmp_path, "p"):
            with pytest.raises(Locked) as raised:
                push(remote, source, MAIN, second)
            assert (raised.value.path, raised.value.seconds) == ("p/lock", 1)
            assert sorted((tmp_path / "p" / "packs").iterdir()) == before
            assert is_tidy(tmp_path, "p")
            assert count_segments(remote.pull().body) == 1
        assert push(remote, source, MAIN, second).outcome is Outcome.DONE
        assert server_refs(tmp_path, "p") == {MAIN.decode(): second.hex()}
        check_store(tmp_path, "p")
