"""The setup of a program's standard streams, before anything else. `thin.c` opens the descriptors in the same way."""

from __future__ import annotations

import io
import os
import sys

MODES = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""The modes in which closed descriptors 0 to 2 are opened on /dev/null. Standard output is read-only, so that a command
fails to write its output (EBADF); messages are dropped."""


def prepare_streams() -> None:
    """Open those of the descriptors 0 to 2 that are closed, because otherwise a file or a connection would get their
    number. Make standard output write characters that its encoding lacks as escapes."""
    for number, mode in enumerate(MODES):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # It gets the lowest free number, which is this one.
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)  # As Python's own.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
