"""Run a command to its end, take its time, and leave nothing of it behind when we are stopped, or killed.

What it prints goes to files, not pipes: a child that outlives it and holds them keeps nobody waiting.
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
"""Bytes of what it last wrote to stderr that are kept."""

PATIENCE = 3.0
"""Seconds that a command we stop has to end by itself."""

GUARD = ("/bin/sh", "-c", "trap '' TERM; read _; kill -KILL 0")
"""Leads the command's process group and kills it when its stdin ends: when we end, in whatever way."""

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Statuses of commands that could not be begun, as shells have them."""


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended."""

    status: int
    """Its exit status; 128 + N if signal N ended it."""
    seconds: float
    """From before it was begun until it had ended."""
    stderr: str
    """The last of what it wrote there."""


def timed(command: Sequence[str]) -> CommandResult:
    """Run `command`, without input, its output dropped; it has a process group of its own.

    When the wait is interrupted, the group is told to end (SIGTERM), and after a while made to; when this process is
    killed, so is the group.
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
    """A process group whose members are killed when this process is; those that are left in the end go on."""
    with subprocess.Popen(GUARD, stdin=subprocess.PIPE, process_group=0) as guard:
        try:
            yield guard.pid
        finally:
            guard.kill()


def _stop(process: subprocess.Popen[bytes], group: int) -> None:
    try:
        _signal(process, group, signal.SIGTERM)
    finally:  # Also where this wait is interrupted. It ends the guard too, which keeps the number taken until then.
        _signal(process, group, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], group: int, number: int) -> None:
    os.killpg(group, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
