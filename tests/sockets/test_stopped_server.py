"""client.call: a change that a stopped server may still carry out is not said to be refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from pausing import Paused
from serving import Server, User, server_refs, wait_until, write_history

from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.medium import ConnectionLost
from smartserver.client.request import Outgoing
from smartserver.errors import OutcomeUnknown
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.rules import Rule

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

MAIN = "refs/heads/main"


def move(tip: str, rule: Rule) -> Outgoing:
    """A request that moves the branch."""
    return Outgoing("p", [(branch_set_last_revision, SetLastRevisionRequest(MAIN.encode(), bytes.fromhex(tip), rule))])


def test_a_repeat_that_is_refused_while_its_first_sending_is_stopped(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    user = User(tmp_path / "user")
    base, theirs = write_history(user, "w", 2, seed="theirs", size=100)
    user.git("checkout", "-q", "--detach", base, folder="w").worked()
    user.git("commit", "-q", "--allow-empty", "-m", "ours", folder="w").worked()
    ours = user.tip("w")
    with contextlib.closing(Paused(root)) as paused, Server(root) as running:
        refspecs = (f"{base}:{MAIN}", f"{theirs}:refs/heads/theirs", f"{ours}:refs/heads/ours")
        user.git("push", "-q", running.url("p"), *refspecs, folder="w").worked()
        ports = [paused.server.port, running.port]
        paused.arm(1)

        class Lost(TcpMedium):
            """Its link is lost when the server has the request and is about to make the change."""

            def poll(self, *, read: bool, write: bool, timeout: float | None = None) -> tuple[bool, bool]:
                if write:
                    return super().poll(read=read, write=write, timeout=timeout)
                assert "incoming" in paused.paused()[-1]
                raise ConnectionLost("the link is lost")

        def connect() -> TcpMedium:
            return (Lost if len(ports) > 1 else TcpMedium)("127.0.0.1", ports.pop(0))

        def ask(outgoing: Outgoing) -> None:
            with Client(lambda: TcpMedium("127.0.0.1", running.port)) as other:
                other.request(outgoing)

        with (
            Client(connect, sleep=lambda _: ask(move(theirs, Rule.FF))) as client,
            pytest.raises(OutcomeUnknown, match="sent again, it was refused: "),
        ):
            client.request(move(ours, Rule.FF))
        ask(move(base, Rule.FORCE))
        paused.go_on()
        wait_until(lambda: server_refs(root, "p")[MAIN] == ours, "the first sending is carried out after all")
