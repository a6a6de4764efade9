"""^C at random moments of a command: when, and what a user must never see of it."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from typing import AnyStr, Final

from git_sides import TIMEOUT

TURNS: Final = int(os.environ.get("INTERRUPTS", "2"))
"""Interrupts of each command."""

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
"""What Python itself says, and forgets the interrupt, where that comes at one moment of an import; what Mercurial does
of a transaction whose `__init__` was interrupted, and where that comes as it runs what others do at its end."""


def moments(command: str, took: float) -> list[float]:
    """Seconds after which a command is interrupted that takes so long: one in each part of that time."""
    chance = random.Random(f"{SEED}/{command}")
    return [chance.uniform(number, number + 1) * took / TURNS for number in range(TURNS)]


def interruptible() -> None:
    """Whatever started the tests may have had its own children ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(process: subprocess.Popen[AnyStr], seconds: float) -> tuple[AnyStr, AnyStr, float]:
    """What a process, the leader of its group, says that is interrupted after so many seconds, and how long it ran."""
    began = time.monotonic()
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    return out, err, time.monotonic() - began


def without_theirs(said: str, more: str) -> str:
    """The output without `_THEIRS`, if it has nothing that no user may see. `more`: a pattern of the tool's noise."""
    ours = _THEIRS.sub("", said)
    assert not re.search(f"{_NOISE}|{more}", ours, re.MULTILINE), said
    return ours
