"""The signals that end a command, and their handler."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def ending() -> list[signal.Signals]:
    """Return SIGINT and SIGTERM, even if they were ignored, and SIGHUP unless it was ignored (by `nohup`)."""
    heard = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if heard else [])]


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make the signals that end a command raise KeyboardInterrupt during the block."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ending()}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
