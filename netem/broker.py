"""The process that owns the namespaces of a packet network: it makes sockets and starts commands in them.

Started by `packets.Packets`, with one end of a channel; it ends, and all that runs in its namespaces with it, when the
other end is closed. The emulator is its child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from netem import devices
from netem.channel import Channel
from netem.emulator import Emulator
from netem.link import Link
from netem.namespaces import Namespace, enter_user_namespace

ADDRESSES = ("10.201.0.1", "10.201.0.2")
"""Of the client's side and the server's, inside their namespaces."""
_DIE_WITH_PARENT = 1


class Broker:
    """Two namespaces and the link between them."""

    def __init__(self, link: Link, backend: str, congestion: str) -> None:
        """`backend`: `tun` or `veth`.

        Raises:
            OSError: not possible here.
        """
        if os.getuid() != 0:
            enter_user_namespace()
        sides = self._sides = (Namespace(), Namespace())
        if backend == "tun":
            ports = (devices.open_tun(sides[0]), devices.open_tun(sides[1]))
        else:
            hub = Namespace()
            ports = (devices.open_veth(sides[0], hub, 0), devices.open_veth(sides[1], hub, 1))
        for number, side in enumerate(sides):
            devices.set_up(
                side, number, ADDRESSES, ethernet=backend == "veth", trains=link.trains, congestion=congestion
            )
        self._groups: set[int] = set()
        self._emulator = self._start_emulator(ports, link)
        for port in ports:
            os.close(port.descriptor)

    def _start_emulator(self, ports: tuple[devices.Port, devices.Port], link: Link) -> tuple[int, Channel]:
        here, there = Channel.pair()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                here.close()
                ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
                Emulator(ports, link).run(there)
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        there.close()
        return pid, here

    def serve(self, channel: Channel) -> None:
        """Do what is asked until nobody can ask any more."""
        emulator = self._emulator[1]
        while True:
            ready = select.select([channel.fileno(), emulator.fileno()], [], [])[0]
            if emulator.fileno() in ready:
                raise RuntimeError("the emulator ended")
            try:
                (question, *arguments), descriptors = channel.receive()
            except EOFError:
                return
            try:
                answer, given = getattr(self, f"_on_{question}")(*arguments, *([descriptors] if descriptors else []))
            except OSError as error:
                answer, given = error, []
            channel.send(answer, given)
            for descriptor in (*descriptors, *given):
                os.close(descriptor)

    def end(self) -> None:
        """Kill all that runs in the namespaces."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._emulator[0], signal.SIGKILL)

    def _on_emulator(self, *question: object) -> tuple[Any, list[int]]:
        emulator = self._emulator[1]
        emulator.send(question)
        return emulator.receive()[0], []

    def _on_socket(self, side: int, family: int, kind: int) -> tuple[None, list[int]]:
        with self._sides[side].entered():
            return None, [socket.socket(family, kind).detach()]

    def _on_listening(self, side: int) -> tuple[int, list[int]]:
        """How many sockets listen there."""
        with self._sides[side].entered():
            return sum(_listening(f"/proc/thread-self/net/{name}") for name in ("tcp", "tcp6")), []

    def _on_setting(self, side: int, name: str, value: str) -> tuple[None, list[int]]:
        devices.set_kernel(self._sides[side], name, value)
        return None, []

    def _on_run(
        self, side: int, command: Sequence[str], environment: Mapping[str, str], folder: str, descriptors: list[int]
    ) -> tuple[int, list[int]]:
        """Start a command: standard input, output and error, and where its exit status is written."""
        pid = os.fork()
        if pid == 0:
            _supervise(self._sides[side], command, environment, folder, descriptors)
        self._groups.add(pid)
        return pid, []


def _supervise(
    side: Namespace, command: Sequence[str], environment: Mapping[str, str], folder: str, descriptors: list[int]
) -> None:
    """In a child: run the command in a session of its own, and write its status. Never returns."""
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        for ignored in (signal.SIGINT, signal.SIGCHLD):  # A command would inherit that.
            signal.signal(ignored, signal.SIG_DFL)
        *standard, status = descriptors
        try:
            with side.entered():
                process = subprocess.Popen(
                    command, stdin=standard[0], stdout=standard[1], stderr=standard[2], env=environment, cwd=folder
                )
            for descriptor in standard:
                os.close(descriptor)
            text = str(process.wait())
        except OSError as error:
            text = f"{error.errno} {error}"
        os.write(status, text.encode())
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _listening(path: str) -> int:
    """Lines of a table of sockets (proc(5)) whose state is 0A."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as table:
        return sum(1 for line in table if line.split()[3] == "0A")
    return 0


def main(descriptor: str) -> None:
    """Set up what the first message asks for, say whether that worked, and serve."""
    channel = Channel.inherited(int(descriptor))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal's ^C is for the commands; we end when our parent does.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    (link, backend, congestion), _ = channel.receive()
    try:
        broker = Broker(link, backend, congestion)
    except OSError as error:
        channel.send(error)
        return
    try:
        channel.send(None)
        broker.serve(channel)
    finally:
        broker.end()


if __name__ == "__main__":
    main(sys.argv[1])
