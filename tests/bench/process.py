"""The cost of processes: wall time, CPU and memory, of a command and of a server, each with all its children.

Memory is read from /proc every few milliseconds. /proc also has the highest mark of each process, so only growth in a
process's last moments is missed. Without /proc (macOS), the figures of a server are 0, and those of a command come from
its resource usage, which counts the largest of its processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.servers import written
from smartserver.cli.errors import CommandError

MODULES: Mapping[str, str] = {"PYTHONPATH": str(Path(__file__).parents[1])}
"""The environment in which another process finds this package."""

SAMPLE = 0.02
"""Seconds between two readings of memory; they cost 1 % of a core."""

IDLE_WITHIN = 300
"""Seconds within which a server is expected to have tidied what was pushed."""

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a command or of a span of time; CPU in seconds, memory in bytes."""

    seconds: float
    cpu: float
    largest: int
    """The most memory that one process had."""
    together: int
    """The most memory that all processes had at one time; a shared page counts for each."""
    system: float = 0.0
    """The kernel's part of the CPU of a command."""


def descendants(pid: int) -> list[int]:
    """Return a process and its living descendants."""
    found = [pid]
    for process in found:
        try:
            threads = list((_PROC / str(process) / "task").iterdir())
        except OSError:
            continue
        for thread in threads:
            try:
                found += map(int, (thread / "children").read_text().split())
            except OSError:
                continue
    return found


def _files(pid: int, name: str) -> Iterator[str]:
    """Yield a file of /proc for a process and each of its descendants."""
    for process in descendants(pid):
        try:
            yield (_PROC / str(process) / name).read_text()
        except OSError:
            continue


def cpu_of(pid: int) -> float:
    """Return the CPU seconds so far of a process and its descendants, with those that ended and were waited for."""
    fields = [text.rpartition(")")[2].split() for text in _files(pid, "stat")]
    return sum(int(ticks) for each in fields for ticks in each[11:15]) * _TICK


def until_idle(pid: int) -> None:
    """Wait until a process and its descendants have computed next to nothing for two seconds. A server tidies a
    repository for some time after a push, with rests."""
    quiet, before = 0, cpu_of(pid)
    end = time.monotonic() + IDLE_WITHIN
    while quiet < 4:
        if time.monotonic() > end:
            raise CommandError(f"process {pid} has not rested for {IDLE_WITHIN} seconds")
        time.sleep(0.5)
        now = cpu_of(pid)
        quiet = quiet + 1 if now - before < 0.025 else 0
        before = now


def memory_of(pid: int) -> tuple[int, int]:
    """Return the highest memory mark of a process and its descendants, and their memory together now, in bytes."""
    largest = together = 0
    for text in _files(pid, "status"):
        sizes = {name: value for name, _, value in (line.partition(":") for line in text.splitlines())}
        largest = max(largest, _kib(sizes.get("VmHWM")))
        together += _kib(sizes.get("VmRSS"))
    return largest, together


def _kib(value: str | None) -> int:
    return int(value.split()[0]) * 1024 if value else 0


class Watch:
    """Measures a process while the context is open, as long as the process runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._largest = self._together = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="watch", daemon=True)
        self._begun = self._ended = 0.0
        self._cpu = 0.0

    def __enter__(self) -> Self:
        # From here on the highest mark is that of this span (Linux 4.0; elsewhere it stays that of the process's life).
        with contextlib.suppress(OSError):
            (_PROC / str(self._pid) / "clear_refs").write_text("5")
        self._cpu = cpu_of(self._pid)
        self._begun = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended = time.monotonic()
        self._over.set()
        self._thread.join()
        self._look()
        self._cpu = cpu_of(self._pid) - self._cpu

    @property
    def cost(self) -> Cost:
        """The cost, once the context is left."""
        return Cost(self._ended - self._begun, self._cpu, self._largest, self._together)

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE):
            self._look()

    def _look(self) -> None:
        largest, together = memory_of(self._pid)
        self._largest = max(self._largest, largest)
        self._together = max(self._together, together)


def measure(command: Sequence[str], folder: Path | None, environment: Mapping[str, str]) -> tuple[Cost, str]:
    """Run a command, and return its cost, its children included, and its standard error."""
    null = subprocess.DEVNULL
    with tempfile.TemporaryFile() as errors:
        begun = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=null, stdout=null, stderr=errors)
        try:
            with Watch(process.pid) as watch:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                ended = time.monotonic()
        except BaseException:
            if process.returncode is None:
                process.terminate()
                process.wait()
            raise
        said = written(errors)
    if process.returncode:
        raise CommandError(f"{' '.join(command)}: status {process.returncode}: {said.strip()}")
    seen = watch.cost
    # Resource usage names the largest too, but counts what this process had when it forked.
    largest = seen.largest or usage.ru_maxrss * _RSS_UNIT
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(ended - begun, cpu, largest, seen.together or largest, usage.ru_stime), said
