"""Blocks signals while an exception from a handler would leave an operation half done.

In a program with other threads, a signal may reach another thread and still raise the exception.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Iterator

RAISING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)
"""The signals whose handlers may raise an exception. Blocking all signals would take ten times as long."""


@contextlib.contextmanager
def held(numbers: Collection[int] = RAISING) -> Iterator[set[int]]:
    """Block these signals inside the context. The context's value is the set of signals that were blocked before, for a
    forked process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # This handles a signal that is pending already.
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def be_ended_by_signals() -> None:
    """Reset the handlers of signals in a forked process, because they are meant for the parent. SIGINT is ignored,
    because the parent gets it, too, and ends this process."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
