"""The zygote: a process that has imported the modules of `git-remote-hpss` and of the commands in `agent.reading`. It
forks a worker for each command.

The zygote has one thread, and does not read a command's messages: the worker reads them and runs the command.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from smartserver.agent.address import NoAgent, is_wanted
from smartserver.agent.circumstances import circumstances
from smartserver.agent.peer import check_user, open_peer, open_process
from smartserver.agent.reading import NAME, READING, is_for_agent
from smartserver.agent.start import BACKLOG
from smartserver.agent.thin import (
    ACCEPTED,
    BEGIN,
    DIRECT,
    ENDED,
    OUTPUT,
    SIGNALS,
    STREAMS,
    ask_to_run,
)
from smartserver.cli import main
from smartserver.cli.git_remote_run import holder_of, serve
from smartserver.client.url import BadUrl
from smartserver.plugins.git.credentials import RunProgram
from smartserver.records.delta import compress
from smartserver.trace.recorder import stand_for
from smartserver.vcs.git.names import HEADS
from smartserver.vcs.git.system import GIT

MAX_PACKET = 1 << 20

TIME_TO_SAY = 2.0
"""Timeout in seconds for a command to send its arguments and environment."""

TIME_TO_RECOVER = 1.0
"""Seconds until the next fork after a fork failed, or a worker ended before it had a command."""

TOUCHED_AT_ONCE = 1000
"""The number of objects to touch between two checks for a command."""

TAKEN = b"t"
"""The byte that a worker sends to the zygote once it has accepted a command."""

PAUSES = (0.01, 0.04, 0.2)
"""The pauses in seconds after each sending of a signal."""

TIME_TO_END = 10.0
"""Seconds that a worker has to end by itself after its command's process has ended."""


def run(listener: socket.socket, keeper: int) -> None:
    """Fork a worker in advance for each command, until the keeper's end of a pair of sockets is closed. `keeper`: the
    descriptor of the zygote's end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps the workers.
    listener.setblocking(False)
    process = open_process("self")
    here = circumstances(process, os.environb).facts
    os.close(process)
    load()
    gc.collect()
    loaded = gc.get_objects()
    loaded += gc.get_referents(*loaded)
    gc.freeze()  # Otherwise a collection would copy the pages of all loaded objects.
    listener.listen(BACKLOG)  # The peer that commands see is now this process, not the maker of the socket.
    is_on = True
    while is_on:
        ours, its = socket.socketpair()
        with ours, its:
            try:
                is_worker = os.fork() == 0
            except OSError:  # The system has no room for another process, so commands run without the agent.
                _turn_away(listener)
                is_on = _wait(keeper, listener, seconds=TIME_TO_RECOVER)
                continue
            if is_worker:
                _run_worker(listener, keeper, ours, its, loaded, here)
            its.close()
            is_on = _wait(keeper, ours)
            if is_on and ours.recv(1):
                # Fork the next worker when this one ends, or when another command comes.
                is_on = _wait(keeper, ours, listener)
            elif is_on:  # The worker ended before it had a command, and the next one may do so too.
                is_on = _wait(keeper, seconds=TIME_TO_RECOVER)


def _wait(keeper: int, *others: socket.socket, seconds: float | None = None) -> bool:
    """Wait until a socket of `others` is readable, or `seconds` have passed. Return False if the keeper has ended."""
    poll = select.poll()
    numbers = [keeper, *[other.fileno() for other in others]]
    for each in numbers:
        poll.register(each, select.POLLIN)
    return not any(number == keeper for number, _ in poll.poll(None if seconds is None else seconds * 1000))


def _turn_away(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def _run_worker(
    listener: socket.socket,
    keeper: int,
    other_end: socket.socket,
    zygote: socket.socket,
    loaded: Sequence[object],
    here: bytes,
) -> NoReturn:
    try:
        os.setsid()  # A process group of its own, for the signals of this command.
        other_end.close()
        os.close(keeper)  # The keeper must see the end of the zygote, so workers must not hold this.
        connection = _wait_for_command(listener, zygote, loaded)
        listener.close()
        zygote.send(TAKEN)
        _work(connection, here)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _wait_for_command(listener: socket.socket, zygote: socket.socket, loaded: Sequence[object]) -> socket.socket:
    """Wait for the next command and return its connection. Meanwhile write to all loaded objects, so that their memory
    pages are copied for this process. Copying the pages during a short command would take a third of its time."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(zygote, select.POLLIN)
    at = 0
    while True:
        found = poll.poll(0 if at < len(loaded) else None)
        if any(number == zygote.fileno() for number, _ in found):  # The zygote has ended.
            os._exit(0)
        if found:
            try:
                return listener.accept()[0]
            except BlockingIOError:
                continue
            except OSError:  # No descriptor is left; the zygote forks another worker after a pause.
                os._exit(1)
        touched = loaded[at : at + TOUCHED_AT_ONCE]  # A new reference changes the object's reference count.
        at += len(touched)


def load() -> None:
    """Import the modules and create the objects that a command would create at first use, so that every worker has
    them."""
    import smartserver.agent.lending
    import smartserver.cli.exporting
    import smartserver.vcs.git.insert
    import smartserver.vcs.git.read
    import smartserver.vcs.git.refs  # noqa: F401

    for name in READING:
        importlib.import_module(main.COMMANDS[name])

    compress(b"Makes the contexts of zstd.")
    for system in GIT.values():
        system.ref_problem(HEADS + b"main")  # Compiles the pattern of names.


def _work(connection: socket.socket, here: bytes) -> NoReturn:
    """Run the command of the process at the other end of the connection, or tell that process to run it without the
    agent."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.settimeout(TIME_TO_SAY)
    try:
        facts = open_peer(connection)
        packet, (folder,), flags, _ = socket.recv_fds(connection, MAX_PACKET, 1)
        above, count, *rest = packet.split(b"\0")
        parent = int(above)
        words = rest[: int(count)]
        environment = dict(variable.split(b"=", 1) for variable in rest[int(count) :])
        there = circumstances(facts, environment)
        os.fchdir(folder)
    except (NoAgent, OSError, ValueError):
        _leave(connection)
    if there.facts != here or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        _leave(connection)
    os.close(facts)
    os.close(folder)
    os.umask(there.mask)
    os.environb.clear()
    os.environb.update(environment)
    run_command = _command(words, parent) if is_wanted(os.environ) else None
    if run_command is None:
        _leave(connection)
    connection.settimeout(None)
    try:
        connection.send(ACCEPTED)
        said, streams, _, _ = socket.recv_fds(connection, 1, len(STREAMS))
    except OSError:
        said, streams = b"", []
    if said != BEGIN or len(streams) != len(STREAMS):  # It did not wait, and runs without the agent.
        os._exit(0)
    for stream, number in zip(streams, STREAMS, strict=True):
        os.dup2(stream, number, inheritable=True)
        os.close(stream)
    outputs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # Until the command handles them; for ever in the thread.
    threading.Thread(target=_heed, args=(connection, threading.get_ident(), outputs), daemon=True).start()

    def run_there(words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool) -> bytes:
        connection.send(ask_to_run(words, variables, said, quiet=quiet))
        return outputs.get()

    stand_for(check_user(connection))
    status = run_command(run_there)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # The command's process may end, and signal, before this one.
    try:
        connection.send(ENDED + bytes([status]))
    except OSError:  # The command's process is gone.
        os._exit(1)
    os._exit(0)


def _command(words: Sequence[bytes], parent: int) -> Callable[[RunProgram], int] | None:
    """Return a function that runs the command and returns its exit status. Return None if the command must run without
    the agent."""
    if words[:1] == [NAME] and is_for_agent(arguments := [*map(os.fsdecode, words[1:])]):
        sys.argv = [NAME.decode(), *arguments]
        return lambda _: _status_of_main()
    if len(words) != 2:
        return None
    remote, url = [word.decode("utf-8", "surrogateescape") for word in words]
    try:
        holder = holder_of(url, os.environ)
    except BadUrl:
        return None  # The command reports the error itself.
    # A program that logs in may ask the user something at his terminal.
    if holder is None or (url.lower().startswith("hpss+ssh") and not holder.prepare()):
        return None
    return lambda run_there: serve(remote, url, os.environ, parent=parent, holder=holder, run_program=run_there)


def _status_of_main() -> int:
    """Run a command of `smartserver`, with the steps of Python's own exit, and return the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # As Python sets it at its start.
    try:
        main.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # The command has reported a full or closed stream.
                stream.flush()
    return 0


def _leave(connection: socket.socket) -> NoReturn:
    connection.send(DIRECT)
    os._exit(0)


def _heed(connection: socket.socket, command: int, outputs: queue.SimpleQueue[bytes]) -> None:
    """Receive signals and outputs of programs from the user's process that asked for the command, and pass them on to
    the command. End the command when that process has ended. `command`: the id of the command's thread."""
    while said := _received(connection):
        if said[:1] == OUTPUT:
            outputs.put(said[1:])
        elif said[0] in SIGNALS:
            _signal(command, said[0])
    _signal(command, signal.SIGTERM)
    time.sleep(TIME_TO_END)
    os._exit(1)


def _signal(thread: int, number: int) -> None:
    """Send a signal to the command several times, of which it handles the first. A signal between Python's last check
    for signals and a system call would have no effect until the call returns."""
    for pause in PAUSES:
        signal.pthread_kill(thread, number)
        time.sleep(pause)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(MAX_PACKET)
    except OSError:
        return b""
