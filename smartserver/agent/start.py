"""Starts an agent. The starting process creates the agent's sockets, so that no command waits for the agent to be
loaded."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
from collections.abc import Mapping

from smartserver.agent.address import KEEPER, ZYGOTE, NoAgent, path_of
from smartserver.programs import python

PROGRAM = "smartserver.cli.agent_run"

KNOWN_NAMES = ("HOME", "PATH", "LANG", "XDG_RUNTIME_DIR")
"""The variables that an agent keeps from its environment, besides LC_*. All others are sent with each command."""

BACKLOG = 64
"""The most commands that may wait until the agent accepts them (listen(2))."""


def start(environment: Mapping[str, str], *, here: bool = False) -> bool:
    """Start an agent unless one is running. Return True if it was started. `here`: run the agent in this process; the
    call then does not return."""
    paths = [path_of(part, environment, make=True) for part in (KEEPER, ZYGOTE)]
    try:
        lock = os.open(f"{paths[0]}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # An agent runs or is being started.
                return False
            numbers = [*[_listen(path) for path in paths], lock]
            _begin(numbers, paths[0], environment, here=here)
        finally:
            os.close(lock)
    except OSError as error:
        raise NoAgent(f"{error.filename or paths[0]}: {error.strerror}") from None
    return True


def _listen(path: str) -> int:
    """Create a socket that listens at a path, and replace a socket that an earlier agent left there."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.path.lexists(path):
        os.unlink(path)
    made.bind(path)  # Nobody else can enter the folder.
    os.chmod(path, 0o600)
    made.listen(BACKLOG)
    return made.detach()


def _begin(numbers: list[int], path: str, environment: Mapping[str, str], *, here: bool) -> None:
    words = python("-m", PROGRAM, *map(str, numbers), path)
    its = {name: value for name, value in environment.items() if name in KNOWN_NAMES or name.startswith("LC_")}
    for number in numbers:
        os.set_inheritable(number, True)
    if here:
        os.execve(sys.executable, words, its)
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)
    ]
    # A lock may depend on a descriptor of the command (`flock`), or a process may wait for the end of a pipe.
    actions += [(os.POSIX_SPAWN_CLOSE, number) for number in _inherited() if number not in numbers]
    try:
        os.posix_spawn(sys.executable, words, its, file_actions=actions, setsid=True)
    finally:
        for number in numbers[:-1]:
            os.close(number)


def _inherited() -> list[int]:
    """Return the descriptors above 2 that a program which is started here would inherit."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # It was the descriptor of the listing.
            if number > 2 and os.get_inheritable(number):
                found.append(number)
    return found
