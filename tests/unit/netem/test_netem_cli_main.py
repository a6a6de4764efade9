"""netem.cli.main: Ctrl-C before a command has begun; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INTERRUPTED = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1] and sys.argv.pop(1):
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from netem.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["netem.cli.commands", "argparse", "asyncio", "netem.cli.run"])
def test_while_modules_are_loaded(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "run", "--rtt", "1s", "--server", "x", "--", "true"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "netem: interrupted\n")


def test_while_nobody_reads() -> None:
    command = [sys.executable, "-c", f"import os; os.close(2)\n{INTERRUPTED}", "argparse", "proxy"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 130
