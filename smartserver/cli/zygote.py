"""The zygote: a process that has loaded what `git-remote-hpss` and the commands of `agent.reading` need. It forks a
worker for each command.

It is one thread, and reads nothing of what a command brings: that is for the worker, which is that command from then
on.
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
"""Seconds a command has to bring what it is."""

TIME_TO_RECOVER = 1.0
"""Seconds until another worker is forked in place of one that could not be, or ended before it had a command."""

TOUCHED_AT_ONCE = 1000
"""Objects, between two looks whether a command is there."""

TAKEN = b"t"
"""The byte that a worker sends to the zygote once it has a command."""

PAUSES = (0.01, 0.04, 0.2)
"""Seconds between the times that a signal is sent."""

TIME_TO_END = 10.0
"""Seconds a worker has to end whose command is gone."""


def run(listener: socket.socket, keeper: int) -> None:
    """Have a worker wait for each command, forked before that comes, until the keeper's end of a pair of sockets is
    closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # So that nobody waits for them.
    listener.setblocking(False)
    process = open_process("self")
    here = circumstances(process, os.environb).facts
    os.close(process)
    load()
    gc.collect()
    loaded = gc.get_objects()
    loaded += gc.get_referents(*loaded)
    gc.freeze()  # A collection would copy the pages of all that is loaded.
    listener.listen(BACKLOG)  # Commands see this process from now on, not the maker of the socket.
    is_on = True
    while is_on:
        ours, its = socket.socketpair()
        with ours, its:
            try:
                is_worker = os.fork() == 0
            except OSError:  # There is no room for another process: commands run themselves.
                _turn_away(listener)
                is_on = _wait(keeper, listener, seconds=TIME_TO_RECOVER)
                continue
            if is_worker:
                _run_worker(listener, keeper, ours, its, loaded, here)
            its.close()
            is_on = _wait(keeper, ours)
            if is_on and ours.recv(1):
                # The next one is made ready when this one ends, unless somebody waits for it.
                is_on = _wait(keeper, ours, listener)
            elif is_on:  # What ended one before it had a command may end the next one too.
                is_on = _wait(keeper, seconds=TIME_TO_RECOVER)


def _wait(keeper: int, *others: socket.socket, seconds: float | None = None) -> bool:
    """Wait until something can be read from one of the others, or so long; whether the keeper is there."""
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
        os.setsid()  # A signal to a group of processes is for those of this command.
        other_end.close()
        os.close(keeper)  # It ends with the last process that has it.
        connection = _wait_for_command(listener, zygote, loaded)
        listener.close()
        zygote.send(TAKEN)
        _work(connection, here)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _wait_for_command(listener: socket.socket, zygote: socket.socket, loaded: Sequence[object]) -> socket.socket:
    """The next command's connection. Until it comes, the pages of all that is loaded become this process's own: to copy
    them one by one, as they are touched, is a third of a short command's time."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(zygote, select.POLLIN)
    at = 0
    while True:
        found = poll.poll(0 if at < len(loaded) else None)
        if any(number == zygote.fileno() for number, _ in found):  # It is gone.
            os._exit(0)
        if found:
            try:
                return listener.accept()[0]
            except BlockingIOError:
                continue
            except OSError:  # There is no descriptor left here: another worker is forked in a while.
                os._exit(1)
        touched = loaded[at : at + TOUCHED_AT_ONCE]  # A reference more to each is a change of it.
        at += len(touched)


def load() -> None:
    """Load and make what a command loads and makes once it needs it: every worker has it then."""
    import smartserver.agent.lending
    import smartserver.cli.exporting
    import smartserver.vcs.git.insert
    import smartserver.vcs.git.read
    import smartserver.vcs.git.refs  # noqa: F401

    for name in READING:
        importlib.import_module(main.COMMANDS[name])

    compress(b"Makes the contexts of zstd.")
    for system in GIT.values():
        system.ref_problem(HEADS + b"main")  # Compiles what a name must match.


def _work(connection: socket.socket, here: bytes) -> NoReturn:
    """Become the command that is at the other end, unless it is to run itself."""
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
    if said != BEGIN or len(streams) != len(STREAMS):  # It did not wait, and runs itself.
        os._exit(0)
    for stream, number in zip(streams, STREAMS, strict=True):
        os.dup2(stream, number, inheritable=True)
        os.close(stream)
    outputs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # Until the command heeds them; in the thread for good.
    threading.Thread(target=_heed, args=(connection, threading.get_ident(), outputs), daemon=True).start()

    def run_there(words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool) -> bytes:
        connection.send(ask_to_run(words, variables, said, quiet=quiet))
        return outputs.get()

    stand_for(check_user(connection))
    status = run_command(run_there)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # Who hears of the end may be gone before this process.
    try:
        connection.send(ENDED + bytes([status]))
    except OSError:  # It is gone.
        os._exit(1)
    os._exit(0)


def _command(words: Sequence[bytes], parent: int) -> Callable[[RunProgram], int] | None:
    """A function that runs the command and returns its status; None: the command is to run itself."""
    if words[:1] == [NAME] and is_for_agent(arguments := [*map(os.fsdecode, words[1:])]):
        sys.argv = [NAME.decode(), *arguments]
        return lambda _: _status_of_main()
    if len(words) != 2:
        return None
    remote, url = [word.decode("utf-8", "surrogateescape") for word in words]
    try:
        holder = holder_of(url, os.environ)
    except BadUrl:
        return None  # It says itself what is wrong.
    # A program that logs in may ask something, at the terminal of who runs it.
    if holder is None or (url.lower().startswith("hpss+ssh") and not holder.prepare()):
        return None
    return lambda run_there: serve(remote, url, os.environ, parent=parent, holder=holder, run_program=run_there)


def _status_of_main() -> int:
    """Run a command of `smartserver` to what Python does at the end of a program: its status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # As Python has it from its start.
    try:
        main.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # It is full or closed, which was said.
                stream.flush()
    return 0


def _leave(connection: socket.socket) -> NoReturn:
    connection.send(DIRECT)
    os._exit(0)


def _heed(connection: socket.socket, command: int, outputs: queue.SimpleQueue[bytes]) -> None:
    """Have the command get the signals that come to who runs it, and the output of programs that run there. End it when
    that is gone."""
    while said := _received(connection):
        if said[:1] == OUTPUT:
            outputs.put(said[1:])
        elif said[0] in SIGNALS:
            _signal(command, said[0])
    _signal(command, signal.SIGTERM)
    time.sleep(TIME_TO_END)
    os._exit(1)


def _signal(thread: int, number: int) -> None:
    """Have the command get a signal. One that comes between Python's last look for signals and a system call is not
    heeded until that returns: it comes more than once, and the command heeds the first."""
    for pause in PAUSES:
        signal.pthread_kill(thread, number)
        time.sleep(pause)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(MAX_PACKET)
    except OSError:
        return b""
