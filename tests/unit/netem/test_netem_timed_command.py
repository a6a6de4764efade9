from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netem import timed_command
from netem.timed_command import KEPT, NOT_FOUND, NOT_RUNNABLE, timed


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_it_has_no_input_and_its_output_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import sys; print('out'); sys.exit(len(sys.stdin.read()))"
    assert timed(python(program)).status == 0
    assert capfd.readouterr().out == ""


def test_a_signal_is_128_and_its_number() -> None:
    assert timed(python("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")).status == 128 + signal.SIGTERM


def test_the_last_of_a_long_complaint_is_kept() -> None:
    ended = timed(python(f"import sys; sys.stderr.write('a' * {KEPT} + 'the end')"))
    assert len(ended.stderr) == KEPT
    assert ended.stderr.endswith("aathe end")


def test_a_command_that_cannot_be_begun(tmp_path: Path) -> None:
    missing, plain = str(tmp_path / "missing"), tmp_path / "plain"
    plain.write_text("no program")
    assert timed([missing]).status == NOT_FOUND
    assert timed([missing]).stderr == f"{missing}: No such file or directory\n"
    assert timed([str(plain)]).status == NOT_RUNNABLE


def test_a_child_that_outlives_it_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It holds the stdout and stderr of the command, and waits for what this test writes afterwards."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert timed(["sh", "-c", 'cat "$0" & true', str(pipe)]).status == 0
    pipe.write_text("it still reads")


@pytest.mark.parametrize(("deaf", "times"), [(False, 1), (True, 1), (True, 2)])
def test_when_the_wait_is_interrupted_nothing_is_left(
    deaf: bool, times: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole group is stopped, and killed when it does not listen, or we are not to wait until it has."""
    waits = 0
    started: list[subprocess.Popen[bytes]] = []
    wait = subprocess.Popen.wait
    ready = tmp_path / "ready"
    os.mkfifo(ready)

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        nonlocal waits
        waits += 1
        if not started:
            started.append(process)
            ready.read_text()  # Until it has said how it takes signals.
        if waits <= times:
            raise KeyboardInterrupt
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    monkeypatch.setattr(timed_command, "PATIENCE", 0.2 if deaf else 30.0)
    ears = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else ""
    program = f"import signal; {ears}; open({str(ready)!r}, 'w').close(); signal.pause()"
    with pytest.raises(KeyboardInterrupt):
        timed(python(program.replace("; ;", ";")))
    (process,) = started
    status = process.returncode
    process.kill()
    assert status == -(signal.SIGKILL if deaf else signal.SIGTERM)
