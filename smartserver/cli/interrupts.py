"""Signals that end a command raise an exception in it, and none is lost."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

AGAIN = 0.001
"""Seconds until a signal that came where nothing can be raised is tried again."""


def heed(numbers: Iterable[signal.Signals], raised: Callable[[int], NoReturn]) -> None:
    """Have each signal raise what `raised` does, but not where whoever started this wants it ignored.

    Where Python would print and drop the exception (in a finalizer), it is raised again soon after.
    """
    last = 0

    def come(number: int, _frame: FrameType | None) -> NoReturn:
        nonlocal last
        last = number
        raised(number)

    def come_again(_number: int, _frame: FrameType | None) -> NoReturn:
        raised(last)

    def unraisable(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt | SystemExit):
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        else:
            sys.__unraisablehook__(what)

    sys.unraisablehook = unraisable
    signal.signal(signal.SIGALRM, come_again)
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:  # As nohup leaves that of a closed terminal.
            signal.signal(number, come)


def ignore(numbers: Iterable[signal.Signals]) -> None:
    """Have none of them do anything."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
