"""The thin start of a command: it hands itself to a process that has all modules loaded.

One packet of bytes with a zero between them goes there: the process above this one, the count of words, the words, and
the environment as NAME=VALUE. Beside it is the working folder. What comes back is a byte, as named below. The standard
streams are sent only after a worker took the command: a stream that waits in a socket stays open, and a program that
reads the command's output to its end would wait for it.

A program that may ask the user something is run here, at the terminal: the worker sends a packet as `ask_to_run` makes
it, and gets the output back.

`thin.c` does the same without Python: change both, and for what is in `address`, `peer` and `cli.git_remote` too.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds 3 ms to each start.
import _socket
import os
import struct
from collections.abc import Callable, Mapping, Sequence

from smartserver.agent.address import ZYGOTE, NoAgent
from smartserver.agent.peer import connect

ACCEPTED, DIRECT, ENDED = b"a", b"d", b"e"
"""The worker waits for `BEGIN`; run it yourself; it ended, with the status in a second byte."""

BEGIN = b"b"
"""Beside it are the streams, and what comes of them is the worker's doing. Later bytes are numbers of signals."""

RUN, OUTPUT = b"r", b"o"
"""Run a program, whose words are in the rest of the packet; its output, which is empty if it failed."""

MAX_PACKET = 64 * 1024
"""Bytes of a program's words and input, and of its output."""

STREAMS = (0, 1, 2)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LOST = 128
"""Exit status where the worker ended without a word, as `git` has it where it cannot go on."""

LAST_WORDS = (
    b"fatal: hpss: the process that ran this command ended without a word: it is unknown whether a change was made\n"
)


TIME_TO_END = 10
"""Seconds a worker has to end after a signal, unless a second one comes. The command ends then, as that signal ends it.
"""


def hand_over(words: Sequence[bytes], environment: Mapping[bytes, bytes]) -> int | None:
    """Have a worker run the command: its exit status. None: nothing was done, and it is to be run here."""
    try:
        packet = [b"%d" % os.getppid(), b"%d" % len(words), *words]
        packet += [name + b"=" + value for name, value in environment.items()]
        worker = connect(ZYGOTE, {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()})
    except (OSError, NoAgent):
        return None
    try:
        return _wait_for(worker, environment) if _begins(worker, b"\0".join(packet)) else None
    finally:
        worker.close()


def _begins(worker: _socket.socket, packet: bytes) -> bool:
    """True if the worker takes the command, and was told to begin."""
    try:
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            _send(worker, packet, folder)
        finally:
            os.close(folder)
        return worker.recv(1) == ACCEPTED and _send(worker, BEGIN, *STREAMS)
    except OSError:  # It is too large, or nobody takes it.
        return False


def _send(worker: _socket.socket, packet: bytes, *descriptors: int) -> bool:
    """Send a packet with descriptors beside it."""
    packed = struct.pack(f"{len(descriptors)}i", *descriptors)
    return bool(worker.sendmsg([packet], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)]))


def _wait_for(worker: _socket.socket, environment: Mapping[bytes, bytes]) -> int:
    """Pass signals on, and run what the worker asks for, until it ends: its exit status."""

    def tell_worker(number: int) -> None:
        try:
            worker.send(bytes([number]))
        except OSError:  # It has ended.
            return

    told: list[Callable[[int], None]] = [tell_worker]
    came: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        came.append(number)
        if len(came) == 1:
            signal.alarm(TIME_TO_END)
        for each in told:
            each(number)
        if len(came) > 1:
            _end(number)

    worker.settimeout(None)
    signal.signal(signal.SIGALRM, lambda _number, _frame: _end(came[0]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        while (said := worker.recv(MAX_PACKET))[:1] == RUN:
            worker.send(OUTPUT + _run(said[1:], environment, told)[:MAX_PACKET])
    except OSError:
        said = b""
    if said[:1] != ENDED:
        os.write(2, LAST_WORDS)
        return LOST
    return said[1]


def _end(number: int) -> None:
    """End by a signal, though the worker has not: it may be stopped."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def ask_to_run(words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool) -> bytes:
    """The packet that has a program run. `variables`: besides those of the environment. `said`: its input, without zero
    bytes. `quiet`: what it says to its user is left out."""
    packet = [b"q" if quiet else b"", said, b"%d" % len(words), *map(os.fsencode, words)]
    return RUN + b"\0".join([*packet, *[os.fsencode(f"{name}={value}") for name, value in variables.items()]])


def _run(packet: bytes, environment: Mapping[bytes, bytes], told: list[Callable[[int], None]]) -> bytes:
    """The output of the program that a packet asks for. `told`: gets its signals too, while it runs."""
    import subprocess  # It takes 8 ms to load, and hardly any command needs it.

    quiet, said, count, *rest = packet.split(b"\0")
    variables = dict(each.split(b"=", 1) for each in rest[int(count) :])
    early: list[int] = []  # Signals that come while it starts.
    told.append(early.append)
    try:
        process = subprocess.Popen(
            rest[: int(count)], env={**environment, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
        )  # fmt: skip
    except OSError:
        told.pop()
        return b""
    told[-1] = process.send_signal
    for each in early:
        process.send_signal(each)
    output, _ = process.communicate(said)
    told.pop()
    return b"" if process.returncode else output
