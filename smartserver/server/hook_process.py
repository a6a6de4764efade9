"""Runs a command of a hook: with JSON as its input, for a limited time, as the leader of a process group."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from smartserver.programs import exit_reason

MOST_SAID: Final = 2000
"""Characters of what a command prints that are told."""


PULSE: Final = 0.5
"""Seconds between two calls of what wants to know how long it takes."""


class Ended(NamedTuple):
    """The end of a command. `status`: None where it was killed after its time."""

    status: int | None
    said: str
    """Its output, on one line."""

    time_limit: int

    @property
    def why(self) -> str:
        """The reason why it failed, in words; empty if it did not."""
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
    """Run a command in a folder, which may get files named `in` and `out`. `pulse`: called now and then, with the
    seconds that it has taken.

    Raises:
        OSError: it cannot be run.
    """
    (place / "in").write_text(json.dumps(said) + "\n", encoding="utf-8")
    with open(place / "in", "rb") as given, open(place / "out", "wb") as out:
        process = subprocess.Popen(
            command, stdin=given, stdout=out, stderr=out, env=environment, cwd=place, start_new_session=True
        )
        status: int | None = None
        start = time.monotonic()
        try:
            while status is None and (left := start + time_limit - time.monotonic()) > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(min(PULSE, left))
                pulse(int(time.monotonic() - start))
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return Ended(status, _words(place / "out"), time_limit)


def _words(file: Path) -> str:
    with open(file, encoding="utf-8", errors="replace") as out:
        lines = out.read(MOST_SAID + 1)
    cut = lines[:MOST_SAID] + ("..." if len(lines) > MOST_SAID else "")
    return "; ".join(line.strip() for line in cut.splitlines() if line.strip())
