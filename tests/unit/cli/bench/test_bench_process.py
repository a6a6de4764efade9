"""cli.bench.process: what a command and its children cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smartserver.cli.bench.process import Watch, cpu_of, descendants, measure, memory_of
from smartserver.cli.errors import CommandError

HAS_PROC = Path("/proc/self/status").exists()

CHILD = (
    "x = bytearray(b'1') * 80_000_000; import time; e = time.process_time() + 0.2\nwhile time.process_time() < e: pass"
)
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}], check=True); print('done')"


def test_a_command_costs_what_its_children_cost() -> None:
    ran = measure([sys.executable, "-c", PARENT], None, os.environ)
    assert (ran.status, ran.output) == (0, "done\n")
    assert ran.cost.cpu >= 0.2
    assert ran.cost.seconds >= 0.2
    assert ran.cost.largest > 80_000_000
    assert ran.cost.together >= ran.cost.largest


def test_a_small_command_is_not_charged_for_the_process_that_measures() -> None:
    if not HAS_PROC:
        pytest.skip("there is no /proc")
    held = bytearray(b"1") * 150_000_000
    ran = measure([sys.executable, "-c", "import time; time.sleep(0.1)"], None, os.environ)
    assert held
    assert 0 < ran.cost.largest < 100_000_000


def test_a_command_that_fails_says_why() -> None:
    script = "import sys; sys.exit('no luck')"
    with pytest.raises(CommandError, match="status 1: no luck"):
        measure([sys.executable, "-c", script], None, os.environ)
    assert measure([sys.executable, "-c", script], None, os.environ, check=False).status == 1


def test_a_server_is_watched_with_its_children() -> None:
    if not HAS_PROC:
        pytest.skip("there is no /proc")
    run_child = f"subprocess.run([sys.executable, '-c', {CHILD!r}])"
    script = f"import subprocess, sys; input(); {run_child}; print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with Watch(process.pid) as watch:
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
        assert watch.cost.cpu >= 0.2
        assert watch.cost.largest > 80_000_000
        assert watch.cost.seconds >= 0.2
        with Watch(process.pid) as quiet:
            pass
        assert quiet.cost.largest < 80_000_000, "an earlier span is counted"
        assert descendants(process.pid) == [process.pid]
    finally:
        process.communicate(b"\n")
    assert (cpu_of(process.pid), memory_of(process.pid)) == (0, (0, 0))
