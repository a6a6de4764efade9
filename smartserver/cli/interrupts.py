"""Signals that end a command: the first one raises an exception that cannot be lost, the later ones do nothing."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a command. SIGHUP is sent when a terminal is closed. Servers that a command started do not
receive it, because they have their own session."""

AGAIN = 0.001
"""Seconds until the exception is raised again, if the signal arrived where Python drops exceptions."""


def on_ending(come: Callable[[int], object]) -> None:
    """Call `come` with the number of each signal in `ENDING`, unless the signal is ignored, as under nohup."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: come(number))


class Interrupts:
    """The handler of `ENDING` for a command. The first signal raises KeyboardInterrupt (^C) or SystemExit; `number`
    keeps it even if the exception is lost.

    Later signals are ignored, because they would stop the cleanup of servers and folders. If the cleanup hangs, SIGQUIT
    (^\\) and SIGKILL end the command. A server has its own handlers (`serve`).

    This handler stays installed for later signals. With SIG_IGN, Python would print an error for a signal that comes
    just before, and child processes would ignore the signals too.
    """

    def __init__(self) -> None:
        self.number = 0
        """The number of the first signal; 0 if none was received."""
        self._over = False

    def heed(self) -> None:
        """Install the handlers and unblock the signals. If Python drops the exception (in a finalizer), it is raised
        again after `AGAIN` seconds."""
        on_ending(self._come)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def end(self) -> None:
        """Raise no further exceptions."""
        self._over = True

    def _come(self, number: int) -> None:
        if not self.number and not self._over:
            self.number = number
            sys.unraisablehook = self._unraisable
            signal.signal(signal.SIGALRM, lambda _number, _frame: self._come_again())
            self._raise()

    def _come_again(self) -> None:
        if not self._over:
            self._raise()

    def _raise(self) -> NoReturn:
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + self.number)

    def _unraisable(self, what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt | SystemExit):
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        else:
            sys.__unraisablehook__(what)
