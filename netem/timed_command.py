"""Run a command to its end and measure its time. If this process is interrupted or killed, the command is killed too.

The command's standard error is written to a file, not a pipe: otherwise a child process that outlives the command and
keeps the pipe open would make this process wait.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KEPT = 64 * 1024
"""The number of bytes kept of the end of stderr."""

PATIENCE = 3.0
"""Seconds for a command to end after SIGTERM."""

GUARD = ("/bin/sh", "-c", "trap '' TERM; read _; kill -KILL 0")
"""The leader of the command's process group. It kills the group when its stdin ends, which is also when this process
ends."""

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit statuses of commands that could not be started, as in shells."""


@dataclass(frozen=True)
class CommandResult:
    """The result of a command that has ended."""

    status: int
    """The exit status; 128 + N if signal N ended the command."""
    seconds: float
    """Seconds from before the start of the command to its end; 0 if it could not be started."""
    stderr: str
    """The end of the command's standard error, at most `KEPT` bytes."""


def timed(command: Sequence[str]) -> CommandResult:
    """Run `command` in a process group of its own, without input, and drop its standard output.

    When the wait is interrupted, the group gets SIGTERM, and after `PATIENCE` SIGKILL. When this process is killed, so
    is the group.
    """
    with tempfile.TemporaryFile() as errors, _group() as group:
        begun = time.monotonic()
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, process_group=group
            )
        except OSError as error:
            status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
            return CommandResult(status, 0.0, f"{command[0]}: {os.strerror(error.errno or 0)}\n")
        try:
            process.wait()
        except BaseException:
            _stop(process, group)
            raise
        seconds = time.monotonic() - begun
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - KEPT))
        status = process.returncode
        return CommandResult(status if status >= 0 else 128 - status, seconds, errors.read().decode(errors="replace"))


@contextlib.contextmanager
def _group() -> Iterator[int]:
    """Yield a process group that is killed when this process is killed. Members left at the end keep running."""
    with subprocess.Popen(GUARD, stdin=subprocess.PIPE, process_group=0) as guard:
        try:
            yield guard.pid
        finally:
            guard.kill()


def _stop(process: subprocess.Popen[bytes], group: int) -> None:
    try:
        _signal(process, group, signal.SIGTERM)
    finally:  # Even if this wait is interrupted. It kills the guard too, which reserves the group's number until then.
        _signal(process, group, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], group: int, number: int) -> None:
    os.killpg(group, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
