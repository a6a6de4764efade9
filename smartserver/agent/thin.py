"""The thin start of a command: it hands itself to a process that has all modules loaded.

One packet of bytes with a zero between them goes there: `circumstances`, the mask of new files, the process above this
one, the count of words, the words, and the environment as NAME=VALUE. Beside it are the working folder and the three
standard streams. What comes back is a byte, as named below.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds 3 ms to each start.
import _socket
import os
import struct
from collections.abc import Mapping, Sequence

from smartserver.agent.address import ZYGOTE, NoAgent, connect

ACCEPTED, DIRECT, ENDED = b"a", b"d", b"e"
"""The worker has the streams, and whatever comes of them is its doing; run it yourself; it ended, with the status in a
second byte."""

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


def hand_over(words: Sequence[bytes], environment: Mapping[bytes, bytes]) -> int | None:
    """Have a worker run the command: its exit status. None: nothing was done, and it is to be run here."""
    try:
        status = _status()
        packet = [_circumstances(status, environment), _field(status, MASK), b"%d" % os.getppid(), b"%d" % len(words)]
        packet += [*words, *[name + b"=" + value for name, value in environment.items()]]
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        worker = connect(ZYGOTE, {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()})
    except (OSError, NoAgent):
        return None
    try:
        descriptors = struct.pack(f"{1 + len(STREAMS)}i", folder, *STREAMS)
        worker.sendmsg([b"\0".join(packet)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
        os.close(folder)
        accepted = worker.recv(1) == ACCEPTED
    except OSError:  # It is too large, or nobody takes it.
        accepted = False
    if not accepted:
        worker.close()
        return None
    worker.settimeout(None)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: worker.send(bytes([number])))
    try:
        said = worker.recv(2)
    except OSError:
        said = b""
    worker.close()
    if said[:1] != ENDED:
        os.write(2, b"fatal: hpss: the process that ran this command ended without a word\n")
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
