"""setup.py: it installs everything where there is no cargo, or an old one, and says in one line what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "cargo is not on PATH"),
        ("cargo 1.63.0 (Debian)", "cargo is 1.63.0, not 1.74 or newer"),
        ("no such program", "{cargo} fails: no such program"),
        ("'; echo 'first' >&2; echo 'error: no toolchain' >&2; exit '1", "{cargo} fails: first; error: no toolchain"),
    ],
)
def test_why_nothing_native_is_built(tmp_path: Path, said: str, why: str) -> None:
    if said:
        (tmp_path / "cargo").write_text(f"#!/bin/sh\necho '{said}'\n")
        (tmp_path / "cargo").chmod(0o755)
    words = [sys.executable, "setup.py", "--quiet", "--name"]
    done = subprocess.run(words, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "smartserver"
    why = why.format(cargo=tmp_path / "cargo")
    assert f"smartserver: the native parts are not built: {why}; all is in Python, and slower\n" in done.stderr
