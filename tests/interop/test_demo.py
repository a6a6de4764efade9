"""`make demo`: the first command of the README; its own exit status says that each operation took two round trips."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.git_histories import generate

TESTS = Path(__file__).parents[1]
AUTHOR = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def test_the_demo(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | AUTHOR | {"PYTHONPATH": str(TESTS), "TMPDIR": str(temporary)}
    generate(tmp_path / "source", environment, count=3)
    words = [sys.executable, "-m", "bench", "demo", str(tmp_path / "source"), "--rtt", "2ms"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "first push of all history       2" in done.stdout
    assert list(temporary.iterdir()) == [], "something was left behind"
