"""forks: a forked process is to who started it what any other is, and to itself what Python starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import Forks

SAYS = "import json, os, sys; print(json.dumps([sys.argv, os.getcwd(), sorted(os.environ), os.getppid(), __name__]))"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("json")
    yield made
    made.close()


def test_it_is_what_it_was_started_as(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text(SAYS)
    for program, name in ((("-c", SAYS), "-c"), (("-m", "says"), str(tmp_path / "says.py")), (("says.py",), "says.py")):
        environment = {"PATH": "/bin", "ONE": "1"}
        status, out, err = forks.run(*program, "a b", "ü", timeout=60, folder=tmp_path, environment=environment)
        assert (status, err) == (0, b"")
        assert json.loads(out) == [[name, "a b", "ü"], str(tmp_path), ["ONE", "PATH"], os.getpid(), "__main__"]


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("import sys; sys.exit(3)", 3, b""),
        ("import sys; sys.exit('no luck')", 1, b"no luck\n"),
        ("1 / 0", 1, b"ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, b""),
        ("import atexit, os; atexit.register(os.write, 2, b'last')", 0, b"last"),
    ],
)
def test_how_it_ends(forks: Forks, program: str, status: int, said: bytes) -> None:
    ended, out, err = forks.run("-c", program, timeout=60)
    assert (ended, out) == (status, b"")
    assert err.endswith(said) if said else err == b""


def test_it_has_what_is_passed_to_it_and_ends_when_told(forks: Forks) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        read, written = os.pipe()
        program = f"import os, time; os.write({written}, b'%d %d' % (os.getpid(), os.getpgrp())); time.sleep(60)"
        process = forks.start("-c", program, pass_fds=[written])
        os.close(written)
        assert os.read(read, 100) == b"%d %d" % (process.pid, process.pid)
        assert process.poll() is None
        process.send_signal(sent)
        assert os.read(read, 100) == b""
        os.close(read)
        assert process.wait(60) == process.poll() == -sent


def test_one_that_takes_too_long_is_killed(forks: Forks) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run("-c", "import time; time.sleep(60)", timeout=0.1)


def test_one_that_is_forgotten_is_killed_and_others_are_not(forks: Forks) -> None:
    slept = ("-c", "import time; time.sleep(60)")
    kept, forgotten = forks.start(*slept), forks.start(*slept)
    pid = forgotten.pid
    forgotten.forget()
    wait_until_gone(pid)
    assert kept.poll() is None
    assert forks.run("-c", "pass", timeout=60) == (0, b"", b"")
    kept.kill()
    assert kept.wait(60) == -signal.SIGKILL


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end


def test_a_stand_in_is_the_program(forks: Forks, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "print(sys.stdin.read(), sys.argv, os.getppid(), 'json' in sys.modules)\nsys.stderr.write('e')\nsys.exit(7)\n"
    )
    program.chmod(0o755)
    stands_in = forks.stand_in(program) / "program"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for heeded, forked in (({}, True), ({"PYTHONDONTWRITEBYTECODE": "1"}, False)):
        done = subprocess.run(
            [stands_in, "word"], input="in", env=plain | heeded, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (7, "e")
        assert done.stdout == f"in {[str(program), 'word']} {os.getpid()} {forked}\n"


def test_none_outlives_the_one_they_are_forked_from() -> None:
    forks = Forks()
    process = forks.start("-c", "import time; time.sleep(60)")
    forks.close()
    with pytest.raises(AssertionError, match="has ended"):
        process.wait(60)
    wait_until_gone(process.pid)
