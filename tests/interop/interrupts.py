"""^C at random moments of a command: the moments, and the output that a user must never see."""

from __future__ import annotations

import os
import random
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import AnyStr, Final

from git_sides import TIMEOUT

TURNS: Final = int(os.environ.get("INTERRUPTS", "2"))
"""The number of interrupts of each command."""

SEED: Final = int(os.environ.get("INTERRUPTS_SEED", "3"))

_NOISE: Final = "Traceback|KeyboardInterrupt|Exception ignored|Fatal Python error"

_THEIRS: Final = re.compile(
    r"Exception ignored in: <function _get_module_lock.*\n"
    r"Traceback .*\n  File \"<frozen importlib.*\nKeyboardInterrupt: \n"
    r"|Exception ignored in: <function transaction\.__del__.*\n"
    r"Traceback .*\n(?:  File \".*/mercurial/transaction\.py\".*\n    .*\n(?: +\^+\n)?)+"
    r"AttributeError: 'transaction' object has no attribute '.*'\n"
    r"|error in exit handlers:\nTraceback .*\n(?: .*\n)+KeyboardInterrupt\n"
)
"""Messages of the tools on an interrupt. Python loses an interrupt at one moment of an import; Mercurial complains of a
transaction whose `__init__` was interrupted, and of an interrupt while exit handlers run."""


def moments(command: str, took: float) -> list[float]:
    """Return the seconds after which to interrupt a command that takes `took`: one in each part of that time."""
    chance = random.Random(f"{SEED}/{command}")
    return [chance.uniform(number, number + 1) * took / TURNS for number in range(TURNS)]


def interruptible() -> None:
    """Restore the default action of SIGINT: the program that started the tests may have had its children ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(process: subprocess.Popen[AnyStr], seconds: float) -> tuple[AnyStr, AnyStr, float]:
    """Interrupt a process group after so many seconds; return the leader's output and how long it ran."""
    began = time.monotonic()
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    return out, err, time.monotonic() - began


def without_theirs(said: str, more: str) -> str:
    """Return the output without `_THEIRS`; nothing else may be seen. `more`: a pattern of the tool's noise."""
    ours = _THEIRS.sub("", said)
    assert not re.search(f"{_NOISE}|{more}", ours, re.MULTILINE), said
    return ours


@dataclass
class Turn:
    """A command that is interrupted so many seconds after it began."""

    seconds: float
    is_cut: bool = False
    """True if it ended with a line on the interrupt."""
    took: float = 0.0
    """The seconds for which it ran."""

    def interrupt(self, start: Callable[[int], subprocess.Popen[bytes]]) -> tuple[int, str]:
        """Start a command, which writes to the given descriptor when it has begun, and interrupt it. Return its status
        and its errors."""
        reads, writes = os.pipe()
        with open(reads, "rb", buffering=0) as begun:
            process = start(writes)
            os.close(writes)
            assert select.select([begun], [], [], TIMEOUT)[0], "it never begins"
        _, err, self.took = interrupted(process, self.seconds)
        return process.returncode, err.decode("utf-8", "replace")


def turns(command: str, run: Callable[[Turn], object]) -> Iterator[Turn]:
    """Yield turns of a command, one in each part of the time that a first run took; they must be `run`.

    At least one must interrupt the command. If all runs were faster than that, they are repeated with earlier
    interrupts.
    """
    whole = Turn(TIMEOUT)
    run(whole)
    assert not whole.is_cut
    made: list[Turn] = []
    for part in (1, 2, 4, 8, 16):
        for each in moments(command, whole.took / part):
            made.append(Turn(each))
            try:
                yield made[-1]
            except BaseException as wrong:
                wrong.add_note(f"{command}, interrupted after {each} s of {whole.took}")
                raise
        if any(turn.is_cut for turn in made):
            return
    raise AssertionError((made, whole))
