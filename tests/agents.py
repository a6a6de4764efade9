"""Agents for tests: an address of their own, processes, and a keeper in a thread."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from smartserver.agent.address import KEEPER, ZYGOTE, NoAgent, path_of
from smartserver.agent.keeper import Keeper
from smartserver.agent.lending import ask
from smartserver.agent.messages import Stop, decode_count

RUN_HERE = 99
"""Exit status of the stand-in for the Python program, to which a program in C leaves a command."""


@contextmanager
def of_its_own() -> Iterator[dict[str, str]]:
    """Yield the environment of a user with an own agent, then stop the agent. A socket needs a short path."""
    folder = tempfile.mkdtemp(prefix="agent", dir="/tmp")
    environment = {"XDG_RUNTIME_DIR": folder, "SMARTSERVER_AGENT": "1"}
    try:
        yield environment
    finally:
        stop(environment)
        shutil.rmtree(folder)


def stop(environment: dict[str, str]) -> bool:
    """Stop the agent of this environment, and tell whether there was one."""
    try:
        ask(Stop(), decode_count, environment)
    except NoAgent:
        return False
    return True


def children(process: int) -> list[int]:
    """Return the ids of the living child processes of a process."""
    try:
        return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def workers(zygote: int) -> list[int]:
    """Return the children of a zygote that run a command. One more child waits for the next command."""
    return [each for each in children(zygote) if _output(each) not in ("", os.devnull)]


def _output(process: int) -> str:
    try:
        return os.readlink(f"/proc/{process}/fd/1")
    except OSError:
        return ""


class Times:
    """The clocks that a test sets for a keeper."""

    now = 0.0
    slept = 0.0


@contextmanager
def keeping(environment: dict[str, str], times: Times, zygote: socket.socket | None = None) -> Iterator[None]:
    """Run a keeper in a thread until it is told to stop or ends by itself."""
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


def received(connection: socket.socket, size: int = 1) -> tuple[bytes, list[str]]:
    """Receive a packet, and return it with the names of the files whose descriptors came with it."""
    packet, descriptors, _, _ = socket.recv_fds(connection, size, 4)
    names = [os.readlink(f"/proc/self/fd/{each}") for each in descriptors]
    for each in descriptors:
        os.close(each)
    return packet, names


class Zygote:
    """A zygote that answers commands as a test says, one after the other, in a thread."""

    def __init__(self, environment: dict[str, str], answer: Callable[[socket.socket], None]) -> None:
        self.packets: list[list[bytes]] = []
        self.folder: list[str] = []
        """The working folder of the last command."""
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path_of(ZYGOTE, environment, make=True))
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # It was closed.
                return
            with connection:
                packet, self.folder = received(connection, 1 << 20)
                if packet:
                    self.packets.append(packet.split(b"\0"))
                    self._answer(connection)

    def close(self) -> None:
        """Take no more commands, and wait until those that came are answered."""
        if self._thread.is_alive():
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
