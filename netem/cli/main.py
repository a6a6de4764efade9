"""The command `netem`. What takes time to load is loaded when Ctrl-C already ends it with one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from netem.cli.signals import INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `netem`; the exit status. Wrong arguments end it with status 2 and one line."""
    before = signal.signal(signal.SIGINT, _interrupted)  # which a command replaces when it has something to undo
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
