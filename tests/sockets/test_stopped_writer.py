"""A writer of another process is stopped just before its record is published: nobody waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import MAIN, History, check_whole, push, refs_of
from serving import PATIENCE

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets

STOPPING = """
import os, signal, sys
from builders import History, push
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

link = LocalTransport.link

def stop(transport, source, target):
    LocalTransport.link = link
    print("about to publish", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    link(transport, source, target)

LocalTransport.link = stop
history = History()
line = history.line(2)
push(PackRepository(LocalTransport(sys.argv[1]), "p"), history, line[1:], {b"refs/heads/stopped": line[1]})
"""


def test_a_stopped_writer_holds_up_nobody_and_loses_nothing(tmp_path: Path) -> None:
    history = History()
    first, stopped = history.line(2)
    (other,) = history.line(1, first, "other")
    repository = PackRepository(LocalTransport(tmp_path), "p")
    push(repository, history, [first], {MAIN: first})
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", STOPPING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "about to publish\n"
            _, status = os.waitpid(writer.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            push(repository, history, [other], {b"refs/heads/other": other})
            assert refs_of(repository) == {MAIN: first, b"refs/heads/other": other}
            writer.send_signal(signal.SIGCONT)
            assert writer.wait(PATIENCE) == 0
        finally:
            writer.kill()
    assert refs_of(repository) == {MAIN: first, b"refs/heads/other": other, b"refs/heads/stopped": stopped}
    check_whole(repository, history)
