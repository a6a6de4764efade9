"""Signals that end a command: the first raises an exception in it that is not lost, the others wait for its end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command. The last is that of a closed terminal: servers a command started have a session of their
own and do not get it."""

AGAIN = 0.001
"""Seconds until a signal that came where nothing can be raised is tried again."""


def on_ending(come: Callable[[int], object]) -> None:
    """Have those signals do this, but not where whoever started this wants them ignored, as nohup does."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: come(number))


class Interrupts:
    """Has the first signal raise KeyboardInterrupt (^C) or SystemExit; `number` tells of it whatever becomes of that.

    The later ones do nothing: they would end what takes away servers and folders, and who presses ^C twice wants these
    gone too. Should that hang, SIGQUIT (^\\) and SIGKILL end it. A server has a way of its own (`serve`).

    They are not set to be ignored: Python complains of one that comes just before that is done, and what a command
    starts would ignore them as well.
    """

    def __init__(self) -> None:
        self.number = 0
        """The signal that came; 0 while none has."""
        self._over = False

    def heed(self) -> None:
        """Begin, also with a signal that waits. Where Python would print and drop the exception (in a finalizer), it
        is raised again soon after."""
        on_ending(self._come)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def end(self) -> None:
        """Raise nothing any more."""
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
