"""The processes of this machine, as /proc shows them, and programs that listen on a port of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self


def read(pid: int, name: str) -> bytes:
    """Return a file of a process; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def state(pid: int) -> str:
    """Return the state of a process, as the letter of ps(1); empty if the process has ended."""
    return read(pid, "stat").decode(errors="replace").rpartition(")")[2][1:2]


def is_alive(pid: int) -> bool:
    """Tell whether a process has not ended."""
    return state(pid) not in ("", "Z", "X")


def status_of(pid: int) -> dict[str, int]:
    """Return the numbers in a process's /proc/PID/status; sizes are in kilobytes."""
    words = (line.split() for line in read(pid, "status").decode(errors="replace").splitlines())
    return {name.rstrip(":"): int(value) for name, value, *_ in (each for each in words if each[1:]) if value.isdigit()}


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def group(leader: int) -> list[int]:
    """Return the living processes of a process group."""
    fields = {pid: read(pid, "stat").decode(errors="replace").rpartition(")")[2].split() for pid in processes()}
    return [pid for pid, each in fields.items() if each[2:3] == [f"{leader}"] and each[0] not in "ZX"]


def peak(pid: int) -> int:
    """Return the most bytes of memory that a process has used."""
    return status_of(pid)["VmHWM"] * 1024


def free_port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


class Listening:
    """A program that listens on a port of loopback, as a context. `why`: where it is said why it does not."""

    def __init__(self, command: Sequence[str], port: int, why: str = "") -> None:
        self.port = port
        self._command, self._why = command, why

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                assert self.process.poll() is None, self._why
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
