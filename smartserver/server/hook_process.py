"""Runs a command of a hook: with JSON as its input, for a limited time, as the leader of a process group.

The beginning of its output is kept; the rest is read and counted, so that a command that prints without end fills
neither memory nor the disk. Its process group is killed when it ends, so that no child keeps the command's files open.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from smartserver.programs import exit_reason

MOST_SAID: Final = 2 << 10
"""The most bytes of a command's output that are kept."""

PULSE: Final = 0.5
"""Seconds between two calls of `pulse`."""

_PIECE: Final = 64 << 10
"""The most bytes that are read at once: the capacity of a pipe."""


class Ended(NamedTuple):
    """The result of a command. `status`: its exit status; None if it was killed at its time limit."""

    status: int | None
    said: str
    """The output of the command, on one line."""

    time_limit: int

    @property
    def why(self) -> str:
        """The reason why the command failed; empty if it succeeded."""
        if self.status is None:
            return f"it did not end within {self.time_limit} s"
        return "" if self.status == 0 else self.said or f"it ended with {exit_reason(self.status)}"


def run_command(
    command: Sequence[str],
    said: object,
    environment: Mapping[str, str],
    place: Path,
    time_limit: int,
    pulse: Callable[[int], None] = lambda seconds: None,
) -> Ended:
    """Run a command in the folder `place`. Its input, `said` as JSON, is written to the file `in` there. `pulse`: is
    called every `PULSE` seconds, with the seconds since the start.

    Raises:
        OSError: the command cannot be run.
    """
    (place / "in").write_text(json.dumps(said) + "\n", encoding="utf-8")
    with contextlib.closing(_Output()) as output, open(place / "in", "rb") as given:
        process = subprocess.Popen(
            command,
            stdin=given,
            stdout=output.theirs,
            stderr=output.theirs,
            env=environment,
            cwd=place,
            start_new_session=True,
        )
        output.begin()
        try:
            status = _wait(process, output, time.monotonic() + time_limit, pulse)
        finally:
            # The number of an empty group is free again, but a system assigns all other numbers first.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.take_rest()
    return Ended(status, output.words, time_limit)


def _wait(
    process: subprocess.Popen[bytes], output: _Output, deadline: float, pulse: Callable[[int], None]
) -> int | None:
    """Wait for a command and return its status; None if it has not ended by the deadline."""
    start = time.monotonic()
    while (left := deadline - time.monotonic()) > 0:
        output.wait(min(PULSE, left))
        with contextlib.suppress(subprocess.TimeoutExpired):
            # A command may close its output, and go on.
            return process.wait(0 if output.is_open else min(PULSE, left))
        pulse(int(time.monotonic() - start))
    return None


class _Output:
    """The output of a command: its beginning, and the number of bytes after that."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self.is_open = True
        """True until the last writer has closed the output."""
        self._begins = bytearray()
        self._left_out = 0
        self._ready = select.poll()
        self._ready.register(self._ours, select.POLLIN)

    def begin(self) -> None:
        """Close the writing end in this process, once the command has inherited it."""
        os.close(self.theirs)
        self.theirs = -1

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for output, and read some of it."""
        if self.is_open and self._ready.poll(seconds * 1000):
            self._take()

    def take_rest(self) -> None:
        """Read the output that is available now."""
        self.wait(0)

    def _take(self) -> None:
        piece = os.read(self._ours, _PIECE)
        self.is_open = bool(piece)
        kept = piece[: MOST_SAID - len(self._begins)]
        self._begins += kept
        self._left_out += len(piece) - len(kept)

    @property
    def words(self) -> str:
        """The output on one line."""
        lines = self._begins.decode("utf-8", "replace").splitlines()
        words = [line.strip() for line in lines if line.strip()]
        return "; ".join(words + ([f"and {self._left_out:,} bytes more"] if self._left_out else []))

    def close(self) -> None:
        """Close both ends."""
        for each in (self._ours, self.theirs):
            if each >= 0:
                os.close(each)
