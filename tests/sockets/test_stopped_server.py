"""client.call: a change that a stopped server may still carry out is not said to be refused."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from pathlib import Path

import pytest
from needs import needs
from serving import Server, User, server_refs, wait_until, write_history

from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.medium import ConnectionLost
from smartserver.client.request import Outgoing
from smartserver.errors import OutcomeUnknown
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.rules import Rule

pytestmark = [pytest.mark.sockets, pytest.mark.interop, needs("/proc")]

MAIN = "refs/heads/main"


def move(tip: str, rule: Rule) -> Outgoing:
    """A request that moves the branch."""
    return Outgoing("p", [(branch_set_last_revision, SetLastRevisionRequest(MAIN.encode(), bytes.fromhex(tip), rule))])


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has this file open: a server that waits for a lock has."""
    descriptors = Path(f"/proc/{pid}/fd")
    with contextlib.suppress(FileNotFoundError):
        return any(each.readlink() == path for each in descriptors.iterdir())
    return False


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are."""
    return all("\nState:\tT" in each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/status"))


def test_a_repeat_that_is_refused_while_its_first_sending_is_stopped(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    user = User(tmp_path / "user")
    base, theirs = write_history(user, "w", 2, seed="theirs", size=100)
    user.git("checkout", "-q", "--detach", base, folder="w").worked()
    user.git("commit", "-q", "--allow-empty", "-m", "ours", folder="w").worked()
    ours = user.tip("w")
    with Server(root) as stopped, Server(root) as running:
        refspecs = (f"{base}:{MAIN}", f"{theirs}:refs/heads/theirs", f"{ours}:refs/heads/ours")
        user.git("push", "-q", running.url("p"), *refspecs, folder="w").worked()
        ports = [stopped.port, running.port]
        path = root / "p" / "lock"
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

            class Lost(TcpMedium):
                """Its link is lost when the server has the request and waits; then the server is stopped."""

                def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
                    if write:
                        return super().poll(read=read, write=write, timeout=timeout)
                    wait_until(lambda: has_open(stopped.process.pid, path), "the server waits for the lock")
                    os.kill(stopped.process.pid, signal.SIGSTOP)
                    # A thread that still ran could get the lock.
                    wait_until(lambda: is_stopped(stopped.process.pid), "every thread of the server is stopped")
                    raise ConnectionLost("the link is lost")

            def connect() -> TcpMedium:
                return (Lost if len(ports) > 1 else TcpMedium)("127.0.0.1", ports.pop(0))

            def another_user_pushes(_: float) -> None:
                fcntl.flock(lock, fcntl.LOCK_UN)
                with Client(lambda: TcpMedium("127.0.0.1", running.port)) as other:
                    other.request(move(theirs, Rule.FF))

            with (
                Client(connect, sleep=another_user_pushes) as client,
                pytest.raises(OutcomeUnknown, match="sent again, it was refused: "),
            ):
                client.request(move(ours, Rule.FF))
        with Client(lambda: TcpMedium("127.0.0.1", running.port)) as other:
            other.request(move(base, Rule.FORCE))
        os.kill(stopped.process.pid, signal.SIGCONT)
        wait_until(lambda: server_refs(root, "p")[MAIN] == ours, "the first sending is carried out after all")
