"""An agent of a test's own: where it listens, and no end of it without it."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smartserver.agent.address import KEEPER, NoAgent, path_of
from smartserver.agent.keeper import Keeper
from smartserver.agent.lending import ask
from smartserver.agent.messages import Stop, decode_count

RUN_HERE = 99
"""Status of what takes the place of the Python program, where a program in C leaves a command to that."""


@contextmanager
def of_its_own() -> Iterator[dict[str, str]]:
    """What is in the environment of its user. The folder's path is short: that of a socket must be."""
    folder = tempfile.mkdtemp(prefix="agent", dir="/tmp")
    environment = {"XDG_RUNTIME_DIR": folder, "SMARTSERVER_AGENT": "1"}
    try:
        yield environment
    finally:
        stop(environment)
        shutil.rmtree(folder)


def stop(environment: dict[str, str]) -> bool:
    """End one; whether there was one."""
    try:
        ask(Stop(), decode_count, environment)
    except NoAgent:
        return False
    return True


def children(process: int) -> list[int]:
    """The processes that one has forked and that are there."""
    try:
        return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def workers(zygote: int) -> list[int]:
    """Those of its children that have a command: its streams are theirs. One more waits for the next command."""
    return [each for each in children(zygote) if _output(each) not in ("", os.devnull)]


def _output(process: int) -> str:
    try:
        return os.readlink(f"/proc/{process}/fd/1")
    except OSError:
        return ""


class Times:
    """The clocks of a keeper, the test's."""

    now = 0.0
    slept = 0.0


@contextmanager
def keeping(environment: dict[str, str], times: Times, zygote: socket.socket | None = None) -> Iterator[None]:
    """A keeper in a thread, until it is told to stop or ends by itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path_of(KEEPER, environment, make=True))
        listener.listen(64)
        keeper = Keeper(listener, lambda: times.now, lambda: times.slept, zygote)
        thread = threading.Thread(target=keeper.run)
        thread.start()
        try:
            yield
        finally:
            stop(environment)
            thread.join()
