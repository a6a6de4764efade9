"""The process that owns the namespaces of a packet network: it makes sockets and starts commands in them.

Started by `network.Packets` with one end of a channel; it ends when the other end is closed. Its first child is the
emulator, which is also the first process of the PID namespace that all commands run in. So whoever of the two ends, in
whatever way, the kernel ends every command, and what commands have left behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Container, Mapping, Sequence
from typing import Any

from netem.link import Link
from netem.packets import devices
from netem.packets.channel import Channel
from netem.packets.emulator import Emulator
from netem.packets.errors import Unavailable
from netem.packets.namespaces import Namespace, become_owner, die_with_parent, show_own_processes

Answer = tuple[Any, list[int]]
"""An answer, and descriptors that go along; they are closed here."""


class Broker:
    """Two namespaces and what runs in them."""

    def __init__(self, sides: tuple[Namespace, Namespace]) -> None:
        self._sides = sides
        self._running: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
        """By a descriptor that says when it ends: the process, and where its status is awaited."""

    def serve(self, channel: Channel) -> None:
        """Do what is asked until nobody can ask any more."""
        while True:
            waiting = select.poll()
            for descriptor in (channel.fileno(), *self._running):
                waiting.register(descriptor, select.POLLIN)
            for descriptor, _ in waiting.poll():
                if descriptor in self._running:
                    self._ended(descriptor)
                elif not self._answer(channel):
                    return

    def wait(self) -> None:
        """Until all commands have ended."""
        for process, _ in self._running.values():
            process.wait()

    def _answer(self, channel: Channel) -> bool:
        """Do what is asked; whether to go on."""
        try:
            (question, *arguments), descriptors = channel.receive()
        except EOFError:
            return False
        try:
            answer, given = getattr(self, f"_on_{question}")(*arguments, *([descriptors] if descriptors else []))
        except Exception as error:  # an argument that has no meaning here is the fault of who asks, and only his
            answer, given = error, []
        try:
            with contextlib.suppress(ConnectionError):  # who asked is gone: the next turn of the loop finds out
                channel.send(answer, given)
        finally:
            for descriptor in (*descriptors, *given):
                os.close(descriptor)
        return True

    def _ended(self, descriptor: int) -> None:
        process, awaited = self._running.pop(descriptor)
        os.close(descriptor)
        with contextlib.suppress(BrokenPipeError):  # nobody waits
            os.write(awaited, str(process.wait()).encode())
        os.close(awaited)

    def _on_run(
        self,
        side: int,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
        folder: str,
        descriptors: Sequence[int],
    ) -> Answer:
        """Start a command; the descriptors are its standard input, output and error, and where its status goes."""
        stdin, stdout, stderr, awaited = descriptors
        with self._sides[side].entered():
            process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd=folder,
                start_new_session=True, preexec_fn=show_own_processes,
            )  # fmt: skip
        self._running[os.pidfd_open(process.pid)] = process, os.dup(awaited)
        return process.pid, []

    def _on_socket(self, side: int, family: int, kind: int) -> Answer:
        with self._sides[side].entered():
            return None, [socket.socket(family, kind).detach()]

    def _on_listening(self, side: int, besides: Sequence[int]) -> Answer:
        """The number of TCP sockets that listen there, besides those that processes of some sessions hold."""
        with self._sides[side].entered():
            found = [each for name in ("tcp", "tcp6") for each in _listening(f"/proc/thread-self/net/{name}")]
        held = _sockets(set(besides)) if besides else set()
        return len([each for each in found if each not in held]), []

    def _on_setting(self, side: int, name: str, value: str) -> Answer:
        devices.set_kernel(self._sides[side], name, value)
        return None, []


def _listening(path: str) -> list[str]:
    """The inodes in a table of sockets (proc(5)) of those whose state is 0A."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as table:
        return [words[9] for words in map(str.split, table) if words[3] == "0A"]
    return []


def _sockets(sessions: Container[int]) -> set[str]:
    """The inodes of the sockets that the processes of some sessions hold."""
    found = set()
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or so has what it held
            if os.getsid(int(process)) in sessions:
                for descriptor in os.listdir(f"/proc/{process}/fd"):
                    with contextlib.suppress(OSError):
                        kind, _, inode = os.readlink(f"/proc/{process}/fd/{descriptor}").partition(":")
                        if kind == "socket":
                            found.add(inode.strip("[]"))
    return found


def _join(congestion: str) -> tuple[tuple[Namespace, Namespace], tuple[devices.Port, devices.Port]]:
    """Make both sides, and the ports of the devices between them.

    Raises:
        Unavailable: the system has none.
    """
    try:
        sides = Namespace(), Namespace()
        return sides, devices.join(sides, congestion=congestion)
    except OSError as error:  # This process ends then, and what it has made with it.
        reason = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
        raise Unavailable(f"no packet network here: {reason}") from error


def _start_emulator(ports: tuple[devices.Port, devices.Port], link: Link, others: Channel) -> tuple[int, Channel]:
    """Fork it: its process, and the channel that answers for it. `others` is this process's own, and ends with it."""
    here, there = Channel.pair()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            here.close()
            others.close()
            die_with_parent()
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what commands leave behind becomes its child
            Emulator(ports, link).run(there)
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    there.close()
    return pid, here


def main(descriptor: int) -> None:
    """Set up what the first message asks for, say whether that worked, and serve."""
    channel = Channel.inherited(descriptor)
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)  # commands would inherit that it is ignored
    (link, congestion), _ = channel.receive()
    try:
        try:
            become_owner()
        except OSError as error:
            raise Unavailable(f"no packet network here: {error.strerror}") from error
        sides, ports = _join(congestion)
    except Unavailable as error:
        with contextlib.suppress(BrokenPipeError):  # Who asked was interrupted meanwhile.
            channel.send(error)
        return
    emulator, control = _start_emulator(ports, link, channel)
    broker = Broker(sides)
    try:
        for port in ports:
            os.close(port.descriptor)
        with contextlib.suppress(BrokenPipeError):  # The same.
            channel.send(None, [control.fileno()])
            control.close()
            broker.serve(channel)
    finally:
        os.kill(emulator, signal.SIGKILL)
        broker.wait()
        os.waitpid(emulator, 0)  # which takes until nothing is left in its namespace, nor a dead child of ours
