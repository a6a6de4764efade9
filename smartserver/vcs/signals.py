"""Signals wait where an exception they raise would leave something half done.

In a program that has other threads they may come to one of these, and raise the exception all the same.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Iterator

RAISING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)
"""The signals that may raise an exception in the programs this runs in. To hold all signals takes ten times as long."""


@contextlib.contextmanager
def held(numbers: Collection[int] = RAISING) -> Iterator[set[int]]:
    """None of them comes until it is left; gives those that were held before, for a process that is forked in here."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # One that came before is raised by this.
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def be_ended_by_signals() -> None:
    """Let signals do what they do to any process, in one that was forked: what the parent does then is the parent's
    alone. An interrupt does nothing: the parent gets it, too, and ends this process."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
