"""The standard streams of a program of ours, before it does anything else. `thin.c` opens the descriptors in the same
way.
"""

from __future__ import annotations

import io
import os
import sys

MODES = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""The modes in which closed descriptors 0 to 2 are opened: there is nothing to read, messages go nowhere, and a command
whose output cannot be written fails (EBADF)."""


def prepare_streams() -> None:
    """Open what is closed of descriptors 0 to 2: else a file or a connection would get its number. A character that the
    encoding of an output lacks is written as an escape."""
    for number, mode in enumerate(MODES):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # It gets the lowest number that is free: this one.
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)  # As Python's own.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
