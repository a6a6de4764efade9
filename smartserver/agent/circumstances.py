"""What a command's process may do and how it runs, which its worker must share.

The worker reads it in /proc (proc(5)), of the command's process: what that says of itself any process of the user could
say, also one that is locked in.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from smartserver.agent.address import CREDENTIALS, NoAgent

NAMESPACES = ("mnt", "pid", "user", "ipc", "uts", "net")

OF_STATUS = (b"Uid:", b"Gid:", b"Groups:", b"Cap", b"NoNewPrivs:", b"Seccomp", b"Cpus_allowed:")
"""Lines of /proc/PROCESS/status that say what a process may do."""

MASK = b"Umask:"

NICE, POLICY = 16, 38
"""Fields of /proc/PROCESS/stat, counted behind the name of the program."""

OF_WORDS = (b"LC_", b"LANG=", b"PYTHONUTF8=", b"PYTHONIOENCODING=")
"""Variables that decide, as Python starts, how it reads and writes words."""


class Circumstances(NamedTuple):
    """Of one process."""

    facts: bytes
    """The same for processes that may stand in for each other."""
    mask: int
    """Of new files."""


def process_at(connection: socket.socket) -> int:
    """The number of the process that made a connection.

    Raises:
        NoAgent: it is in another namespace of processes.
    """
    process, _, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    if process == 0:
        raise NoAgent("expected a process of this namespace at the other end")
    return int(process)


def circumstances(process: int, environment: Mapping[bytes, bytes]) -> Circumstances:
    """Those of a process. `environment`: as Python has it there.

    Raises:
        OSError: it is gone, or the system does not tell.
    """
    folder = f"/proc/{process}"
    status = _read(f"{folder}/status").splitlines()
    stat = _read(f"{folder}/stat").rpartition(b")")[2].split()
    root = os.stat(f"{folder}/root")
    facts = [
        *[os.readlink(f"{folder}/ns/{name}").encode() for name in NAMESPACES],
        b"%d:%d" % (root.st_dev, root.st_ino),
        *[line for line in status if line.startswith(OF_STATUS)],
        stat[NICE],
        stat[POLICY],
        _read(f"{folder}/oom_score_adj"),
        _read(f"{folder}/limits"),
        *[_unit(line) for line in _read(f"{folder}/cgroup").splitlines()],
        *sorted(b"%s=%s" % each for each in environment.items() if (each[0] + b"=").startswith(OF_WORDS)),
    ]
    mask = next(line[len(MASK) :] for line in status if line.startswith(MASK))
    return Circumstances(b"\n".join(facts), int(mask, 8))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _unit(line: bytes) -> bytes:
    """A control group, which may limit memory or choose a route; each terminal has a `.scope` of its own in one."""
    above, _, last = line.rpartition(b"/")
    return above if last.endswith(b".scope") else line
