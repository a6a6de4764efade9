"""The thin start of a command: it hands itself to a process that has all modules loaded.

One packet of bytes with a zero between them goes there: `circumstances`, the mask of new files, the process above this
one, the count of words, the words, and the environment as NAME=VALUE. Beside it is the working folder. What comes back
is a byte, as named below. The standard streams go to a worker that takes the command in time: what waits at a socket is
open, and keeps those waiting who read what the command says to its end.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping, Sequence

from smartserver.agent.address import ZYGOTE, NoAgent, connect

ACCEPTED, DIRECT, ENDED = b"a", b"d", b"e"
"""The worker waits for `BEGIN`; run it yourself; it ended, with the status in a second byte."""

BEGIN = b"b"
"""Beside it are the streams, and what comes of them is the worker's doing. Later bytes are numbers of signals."""

STREAMS = (0, 1, 2)

NAMESPACES = ("mnt", "pid", "user", "ipc", "uts")

OF_STATUS = (b"Uid:", b"Gid:", b"Groups:", b"Cap", b"NoNewPrivs:", b"Seccomp:", b"Cpus_allowed:")
"""Lines of /proc/self/status (proc(5)) that say what a process may do."""

MASK = b"Umask:"

OF_WORDS = (b"LC_", b"LANG=", b"LANGUAGE=", b"PYTHONUTF8=", b"PYTHONIOENCODING=")
"""Variables that decide, as Python starts, how it reads and writes words."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LOST = 128
"""Exit status where the worker ended without a word, as `git` has it where it cannot go on."""

LAST_WORDS = (
    b"fatal: hpss: the process that ran this command ended without a word: it is unknown whether a change was made\n"
)


def hand_over(words: Sequence[bytes], environment: Mapping[bytes, bytes]) -> int | None:
    """Have a worker run the command: its exit status. None: nothing was done, and it is to be run here."""
    try:
        status = _status()
        packet = [_circumstances(status, environment), _field(status, MASK), b"%d" % os.getppid(), b"%d" % len(words)]
        packet += [*words, *[name + b"=" + value for name, value in environment.items()]]
        worker = connect(ZYGOTE, {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()})
    except (OSError, NoAgent):
        return None
    with worker:
        return _wait_for(worker) if _begins(worker, b"\0".join(packet)) else None


def _begins(worker: socket.socket, packet: bytes) -> bool:
    """Whether the worker takes the command, and was told to begin."""
    try:
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            socket.send_fds(worker, [packet], [folder])
        finally:
            os.close(folder)
        return worker.recv(1) == ACCEPTED and bool(socket.send_fds(worker, [BEGIN], STREAMS))
    except OSError:  # It is too large, or nobody takes it.
        return False


def _wait_for(worker: socket.socket) -> int:
    """Pass signals on until the worker ends: its exit status."""

    def pass_on(number: int, _frame: object) -> None:
        try:
            worker.send(bytes([number]))
        except OSError:  # It has ended.
            return

    worker.settimeout(None)
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        said = worker.recv(2)
    except OSError:
        said = b""
    if said[:1] != ENDED:
        os.write(2, LAST_WORDS)
        return LOST
    return said[1]


def circumstances(environment: Mapping[bytes, bytes]) -> bytes:
    """All that makes a process run as this one runs, besides what goes with the packet.

    Raises:
        OSError: the system does not tell.
    """
    return _circumstances(_status(), environment)


def _status() -> list[bytes]:
    with open("/proc/self/status", "rb") as file:
        return file.read().splitlines()


def _field(status: Sequence[bytes], name: bytes) -> bytes:
    return next((line[len(name) :].strip() for line in status if line.startswith(name)), b"")


def _circumstances(status: Sequence[bytes], environment: Mapping[bytes, bytes]) -> bytes:
    with open("/proc/self/limits", "rb") as file:
        limits = file.read()
    root = os.stat("/")
    facts = [
        *[os.readlink(f"/proc/self/ns/{name}").encode() for name in NAMESPACES],
        b"%d:%d" % (root.st_dev, root.st_ino),
        *[line for line in status if line.startswith(OF_STATUS)],
        *sorted(b"%s=%s" % each for each in environment.items() if (each[0] + b"=").startswith(OF_WORDS)),
        limits,
    ]
    return b"\n".join(facts)
