"""Which signals end a command, and how it is interrupted by them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def ending() -> list[signal.Signals]:
    """SIGINT and SIGTERM, also where they were ignored; SIGHUP where it was not (by `nohup`)."""
    heard = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if heard else [])]


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have the signals that end a command raise KeyboardInterrupt."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ending()}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
