"""bench.process: what a command and its children cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import process
from bench.process import Watch, cpu_of, descendants, measure, memory_of

from smartserver.cli.errors import CommandError

HAS_PROC = Path("/proc/self/status").exists()
PATIENCE = 30.0

CHILD = (
    "x = bytearray(b'1') * 80_000_000; import time; e = time.process_time() + 0.2\nwhile time.process_time() < e: pass"
)
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}]); print('done', file=sys.stderr)"


def test_a_command_costs_what_its_children_cost() -> None:
    cost, said = measure([sys.executable, "-c", PARENT], None, os.environ)
    assert said == "done\n"
    assert cost.cpu >= 0.2
    assert cost.seconds >= 0.2
    assert cost.largest > 80_000_000
    assert cost.together >= cost.largest


def test_a_small_command_is_not_charged_for_the_process_that_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not HAS_PROC:
        pytest.skip("there is no /proc")
    held = bytearray(b"1") * 150_000_000
    seen = tmp_path / "seen"

    def look(pid: int) -> tuple[int, int]:
        found = memory_of(pid)
        seen.touch()
        return found

    monkeypatch.setattr(process, "memory_of", look)
    script = f"import os, time; end = time.monotonic() + {PATIENCE}\n"
    script += f"while not os.path.exists({str(seen)!r}) and time.monotonic() < end: time.sleep(0.01)"
    cost, _ = measure([sys.executable, "-c", script], None, os.environ)
    assert held
    assert 0 < cost.largest < 100_000_000


def test_a_command_that_fails_says_why() -> None:
    script = "import sys; sys.exit('no luck')"
    with pytest.raises(CommandError, match="status 1: no luck"):
        measure([sys.executable, "-c", script], None, os.environ)


def test_a_server_is_watched_with_its_children() -> None:
    if not HAS_PROC:
        pytest.skip("there is no /proc")
    run_child = f"subprocess.run([sys.executable, '-c', {CHILD!r}])"
    script = f"import subprocess, sys; input(); {run_child}; print(flush=True); input()"
    server = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        with Watch(server.pid) as watch:
            server.stdin.write(b"\n")
            server.stdin.flush()
            server.stdout.readline()
        assert watch.cost.cpu >= 0.2
        assert watch.cost.largest > 80_000_000
        assert watch.cost.seconds >= 0.2
        with Watch(server.pid) as quiet:
            pass
        assert quiet.cost.largest < 80_000_000, "an earlier span is counted"
        assert descendants(server.pid) == [server.pid]
    finally:
        server.communicate(b"\n")
    assert (cpu_of(server.pid), memory_of(server.pid)) == (0, (0, 0))
