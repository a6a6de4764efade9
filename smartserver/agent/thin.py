"""The thin start of a command: it passes the command to a worker, a process that has all modules loaded.

It sends one packet of fields with a zero byte between them: the id of the parent process, the number of the command's
words, the words, and the environment as NAME=VALUE. The descriptor of the working folder is sent with it. The answer is
one of the bytes below. The standard streams are sent only after a worker accepted the command. A stream that waits in a
socket stays open, and a program that reads the command's output to its end would wait for it.

A program that may ask the user something is run here, at the terminal: the worker sends a packet of `ask_to_run`, and
gets the output.

`thin.c` does the same without Python. Change both together, also for changes in `address`, `peer` and `cli.git_remote`.
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
"""The answers of a worker. ACCEPTED: the worker waits for `BEGIN`. DIRECT: the command must run in this process. ENDED:
the command has ended; the second byte is its status."""

BEGIN = b"b"
"""The message that starts the command. The standard streams are sent with it. Each later byte is the number of a signal
for the worker."""

RUN, OUTPUT = b"r", b"o"
"""RUN: a worker's request to run a program, which the rest of the packet describes (`ask_to_run`). OUTPUT: the answer,
with the output of the program, or none if it failed."""

MAX_PACKET = 64 * 1024
"""The most bytes of a program's words and input, and of its output."""

STREAMS = (0, 1, 2)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LOST = 128
"""The exit status if the worker ended without an answer: that of a fatal error of git."""

LAST_WORDS = (
    b"fatal: hpss: the process that ran this command ended without a word: it is unknown whether a change was made\n"
)


TIME_TO_END = 10
"""Seconds that a worker has to end after a signal. A second signal, or the end of this time, ends this process."""


def hand_over(words: Sequence[bytes], environment: Mapping[bytes, bytes]) -> int | None:
    """Let a worker run the command. Return its exit status, or None if nothing was done, so that the command must run
    here."""
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
    """Offer the command to a worker. Return True if the worker accepted it and `BEGIN` was sent."""
    try:
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            _send(worker, packet, folder)
        finally:
            os.close(folder)
        return worker.recv(1) == ACCEPTED and _send(worker, BEGIN, *STREAMS)
    except OSError:  # The packet is too large, or no worker takes it.
        return False


def _send(worker: _socket.socket, packet: bytes, *descriptors: int) -> bool:
    """Send a packet together with descriptors."""
    packed = struct.pack(f"{len(descriptors)}i", *descriptors)
    return bool(worker.sendmsg([packet], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)]))


def _wait_for(worker: _socket.socket, environment: Mapping[bytes, bytes]) -> int:
    """Pass signals to the worker, and run programs for it, until it ends. Return the exit status."""

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
    """End this process by a signal, without waiting for the worker, which may be stopped (SIGSTOP)."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def ask_to_run(words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool) -> bytes:
    """Return the packet that requests a run of a program. `variables`: additional variables of its environment. `said`:
    its input, without zero bytes. `quiet`: true to drop its standard error."""
    packet = [b"q" if quiet else b"", said, b"%d" % len(words), *map(os.fsencode, words)]
    return RUN + b"\0".join([*packet, *[os.fsencode(f"{name}={value}") for name, value in variables.items()]])


def _run(packet: bytes, environment: Mapping[bytes, bytes], told: list[Callable[[int], None]]) -> bytes:
    """Run the program that a packet names, and return its output. `told`: the functions that pass on signals; while the
    program runs, one of them signals it."""
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
