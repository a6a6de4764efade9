"""cli.interrupts: where a signal comes, and what is raised then."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from smartserver.cli.interrupts import ENDING

SCRIPT = """
import os, signal, sys, time
from smartserver.cli.interrupts import Interrupts

class Dropped:
    def __del__(self):
        print("dropped", flush=True)
        {dropped}

interrupts = Interrupts()
interrupts.heed()
try:
    Dropped()
    {then}
except BaseException as wrong:
    {later}
    print(repr(wrong), interrupts.number)
"""

WAIT = "time.sleep(600)"
GO_ON = "time.sleep(0.05); print('went on', interrupts.number)"
"""Fifty times as long as it takes until one comes again."""


def run(
    *, dropped: str = "", then: str = GO_ON, later: str = "pass", before: str = ""
) -> subprocess.CompletedProcess[str]:
    """What a script did in whose finalizer something happens, then something else, and something where that raised."""
    script = before + SCRIPT.format(dropped=dropped, then=then, later=later)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)


def shown(number: int) -> str:
    raised = "KeyboardInterrupt()" if number == signal.SIGINT else f"SystemExit({128 + number})"
    return f"{raised} {number}"


@pytest.mark.parametrize("number", ENDING)
def test_one_that_comes_where_python_drops_what_it_raises_comes_again(number: int) -> None:
    done = run(dropped=f"signal.raise_signal({number})", then=WAIT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["dropped", shown(number)]


def test_but_not_after_the_end() -> None:
    done = run(dropped=f"signal.raise_signal({signal.SIGINT})", then=f"interrupts.end(); {GO_ON}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["dropped", f"went on {signal.SIGINT}"]


@pytest.mark.parametrize("error", ["OSError('in a finalizer')", "SystemExit('in a finalizer')"])
def test_what_else_is_dropped_is_shown_and_nothing_more(error: str) -> None:
    done = run(dropped=f"raise {error}")
    assert (done.returncode, done.stdout) == (0, "dropped\nwent on 0\n")
    assert error.replace("('", ": ").removesuffix("')") in done.stderr


@pytest.mark.parametrize("number", ENDING)
def test_of_the_later_ones_nothing_comes(number: int) -> None:
    later = "; ".join([f"signal.raise_signal({each})" for each in ENDING])
    done = run(then=f"signal.raise_signal({number})", later=later)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["dropped", shown(number)]


@pytest.mark.parametrize("number", ENDING)
def test_after_the_end_nothing_comes(number: int) -> None:
    done = run(then=f"interrupts.end(); signal.raise_signal({number}); {GO_ON}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "dropped\nwent on 0\n", "")


def test_what_is_started_meanwhile_can_be_ended() -> None:
    later = "print(os.system('kill -INT $$'), flush=True)"
    done = run(then=f"signal.raise_signal({signal.SIGTERM})", later=later)
    assert done.stdout.splitlines() == ["dropped", str(int(signal.SIGINT)), shown(signal.SIGTERM)]


@pytest.mark.parametrize("number", ENDING)
def test_what_whoever_started_it_wants_ignored_is(number: int) -> None:
    before = f"import signal; signal.signal({number}, signal.SIG_IGN)"
    done = run(before=before, dropped=f"signal.raise_signal({number})")
    assert (done.returncode, done.stdout, done.stderr) == (0, "dropped\nwent on 0\n", "")
