"""cli.interrupts: where a signal comes, and what is raised then."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import signal, sys, time
from smartserver.cli import interrupts

class Dropped:
    def __del__(self):
        print("dropped", flush=True)
        {dropped}

def raised(number):
    interrupts.ignore(numbers)
    print("raised", number, flush=True)
    raise {error}

numbers = (signal.SIGINT, signal.SIGTERM)
interrupts.heed(numbers, raised)
try:
    Dropped()
    time.sleep(600)
except BaseException as wrong:
    print(repr(wrong))
"""


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(3)"])
@pytest.mark.parametrize("number", [2, 15])
def test_one_that_comes_where_python_drops_what_it_raises_comes_again(number: int, error: str) -> None:
    script = SCRIPT.format(dropped=f"signal.raise_signal({number})", error=error)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    shown = error if "(" in error else f"{error}()"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["dropped", f"raised {number}", f"raised {number}", shown]


def test_what_else_is_dropped_is_shown() -> None:
    script = SCRIPT.format(dropped="raise OSError('in a finalizer')", error="KeyboardInterrupt").replace("600", "0")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "dropped\n")
    assert "OSError: in a finalizer" in done.stderr


def test_what_whoever_started_it_wants_ignored_is() -> None:
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + SCRIPT.replace("600", "0")
    script = script.format(dropped="signal.raise_signal(15)", error="KeyboardInterrupt")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "dropped\n", "")
