"""Run a command to its end, take its time, and leave nothing of it behind when we are stopped.

What it prints goes to files, not pipes: a child that outlives it and holds them keeps nobody waiting.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

KEPT = 64 * 1024
"""Bytes of what it last wrote to stderr that are kept."""

PATIENCE = 3.0
"""Seconds that a command we stop has to end by itself."""

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Statuses of commands that could not be begun, as shells have them."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    """Its exit status; 128 + N if signal N ended it."""
    seconds: float
    """From before it was begun until it had ended."""
    stderr: str
    """The last of what it wrote there."""


def timed(command: Sequence[str]) -> Ended:
    """Run `command`, without input, its output dropped; it has a process group of its own.

    When the wait is interrupted, the group is told to end (SIGTERM), and after a while made to.
    """
    with tempfile.TemporaryFile() as errors:
        begun = time.monotonic()
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, process_group=0
            )
        except OSError as error:
            status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
            return Ended(status, 0.0, f"{command[0]}: {os.strerror(error.errno or 0)}\n")
        try:
            process.wait()
        except BaseException:
            _stop(process)
            raise
        seconds = time.monotonic() - begun
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - KEPT))
        status = process.returncode
        return Ended(status if status >= 0 else 128 - status, seconds, errors.read().decode(errors="replace"))


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):  # All of it has ended.
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
