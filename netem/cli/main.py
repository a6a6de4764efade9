"""The entry point of the command `netem`. Its handler of Ctrl-C, which prints one line, is set before slow imports."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from netem.cli.signals import INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `netem` and return its exit status. Wrong arguments end it with status 2 and one line."""
    before = signal.signal(signal.SIGINT, _interrupted)  # a command with something to undo replaces this handler
    try:
        from netem.cli.commands import run

        return run(argv)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(*_: object) -> None:
    try:
        os.write(2, b"netem: interrupted\n")
    finally:
        os._exit(INTERRUPTED)
