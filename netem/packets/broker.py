"""The process that owns the namespaces of a packet network: it makes sockets and starts commands in them.

`network.Packets` starts it with one end of a channel, and it ends when the other end is closed. Its first child is the
emulator, which is also the first process of the PID namespace of all commands. So if either of the two ends, for any
reason, the kernel kills every command and its descendants.
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
"""An answer and its descriptors, which this process closes after they are sent."""


class Broker:
    """Two namespaces and the commands that run in them."""

    def __init__(self, sides: tuple[Namespace, Namespace]) -> None:
        self._sides = sides
        self._running: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
        """The pidfd of each running command -> (its process, the pipe to which its exit status is written)."""

    def serve(self, channel: Channel) -> None:
        """Answer requests until the other end of `channel` is closed."""
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
        """Wait until all commands have ended."""
        for process, _ in self._running.values():
            process.wait()

    def _answer(self, channel: Channel) -> bool:
        """Answer one request. Return False if the other end is closed."""
        try:
            (question, *arguments), descriptors = channel.receive()
        except EOFError:
            return False
        try:
            answer, given = getattr(self, f"_on_{question}")(*arguments, *([descriptors] if descriptors else []))
        except Exception as error:  # an error of the request is its sender's alone
            answer, given = error, []
        try:
            with contextlib.suppress(ConnectionError):  # the other end is closed, as the next turn of the loop notices
                channel.send(answer, given)
        finally:
            for descriptor in (*descriptors, *given):
                os.close(descriptor)
        return True

    def _ended(self, descriptor: int) -> None:
        process, awaited = self._running.pop(descriptor)
        os.close(descriptor)
        with contextlib.suppress(BrokenPipeError):  # no process waits for the status
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
        """Start a command. `descriptors`: its standard input, output and error, and a pipe for its exit status."""
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
        """Answer with the number of listening TCP sockets, except sockets of processes in the given sessions."""
        with self._sides[side].entered():
            found = [each for name in ("tcp", "tcp6") for each in _listening(f"/proc/thread-self/net/{name}")]
        held = _sockets(set(besides)) if besides else set()
        return len([each for each in found if each not in held]), []

    def _on_setting(self, side: int, name: str, value: str) -> Answer:
        devices.set_kernel(self._sides[side], name, value)
        return None, []


def _listening(path: str) -> list[str]:
    """Return the inodes of the listening sockets (state 0A) in a table of sockets (proc(5))."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as table:
        return [words[9] for words in map(str.split, table) if words[3] == "0A"]
    return []


def _sockets(sessions: Container[int]) -> set[str]:
    """Return the inodes of the sockets of the processes in some sessions."""
    found = set()
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process has ended, or the descriptor is closed
            if os.getsid(int(process)) in sessions:
                for descriptor in os.listdir(f"/proc/{process}/fd"):
                    with contextlib.suppress(OSError):
                        kind, _, inode = os.readlink(f"/proc/{process}/fd/{descriptor}").partition(":")
                        if kind == "socket":
                            found.add(inode.strip("[]"))
    return found


def _join(congestion: str) -> tuple[tuple[Namespace, Namespace], tuple[devices.Port, devices.Port]]:
    """Make the namespaces of both sides, and the ports of the devices between them.

    Raises:
        Unavailable: the system does not permit them.
    """
    try:
        sides = Namespace(), Namespace()
        return sides, devices.join(sides, congestion=congestion)
    except OSError as error:  # This process ends then, and its namespaces with it.
        reason = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
        raise Unavailable(f"cannot create a packet network: {reason}") from error


def _start_emulator(ports: tuple[devices.Port, devices.Port], link: Link, others: Channel) -> tuple[int, Channel]:
    """Fork the emulator. Return its pid and a channel to it. `others`: a channel that only the parent uses, which the
    emulator closes."""
    here, there = Channel.pair()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            here.close()
            others.close()
            die_with_parent()
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of commands become its children
            Emulator(ports, link).run(there)
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    there.close()
    return pid, here


def main(descriptor: int) -> None:
    """Create the network that the first message describes, send None or the error, and serve requests. `descriptor`:
    the broker's end of the channel."""
    channel = Channel.inherited(descriptor)
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)  # otherwise commands would inherit an ignored signal
    (link, congestion), _ = channel.receive()
    try:
        try:
            become_owner()
        except OSError as error:
            raise Unavailable(f"cannot create a packet network: {error.strerror}") from error
        sides, ports = _join(congestion)
    except Unavailable as error:
        with contextlib.suppress(BrokenPipeError):  # The other process was interrupted.
            channel.send(error)
        return
    emulator, control = _start_emulator(ports, link, channel)
    broker = Broker(sides)
    try:
        for port in ports:
            os.close(port.descriptor)
        with contextlib.suppress(BrokenPipeError):  # The other process was interrupted.
            channel.send(None, [control.fileno()])
            control.close()
            broker.serve(channel)
    finally:
        os.kill(emulator, signal.SIGKILL)
        broker.wait()
        os.waitpid(emulator, 0)  # returns when its namespace has no process left, and no zombie of this process
