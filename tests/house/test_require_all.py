"""tests/conftest.py: with REQUIRE_ALL=1 nothing is skipped in silence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1]

LACKING = "import needs\nneeds.NEEDS['x'] = needs.Need('for the reason given', lambda: False)\n"

SKIPS = {
    "call": "def test_x(): pytest.skip('for the reason given')",
    "mark": "@pytest.mark.skip(reason='for the reason given')\ndef test_x(): pass",
    "condition": "@pytest.mark.skipif(True, reason='for the reason given')\ndef test_x(): pass",
    "fixture": "@pytest.fixture\ndef f(): pytest.skip('for the reason given')\ndef test_x(f): pass",
    "need": f"{LACKING}@needs.needs('x')\ndef test_x(): pass",
    "needing fixture": f"{LACKING}@pytest.fixture(scope='session')\ndef f(): needs.require('x')\ndef test_x(f): pass",
    "program": f"{LACKING}def test_x(): needs.program('x')",
    "module": "pytest.skip('for the reason given', allow_module_level=True)",
    "import": "pytest.importorskip('no_such_module', reason='for the reason given')",
}


Run = subprocess.CompletedProcess[str]


def run(folder: Path, sources: Mapping[str, str], require_all: str) -> Run:
    """Run each source as a test file."""
    for name in ("conftest.py", "needs.py", "sources.py"):
        shutil.copy(TESTS / name, folder)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    for number, source in enumerate(sources.values()):
        (folder / f"test_{number}.py").write_text(f"import pytest\n\n{source}\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rN", "--disable-plugin-autoload", "--continue-on-collection-errors"],
        cwd=folder,
        env=os.environ | {"REQUIRE_ALL": require_all},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_skip_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPS, require_all="1")
    assert done.returncode == 1, done.stdout
    assert done.stdout.count("REQUIRE_ALL=1, but this was not run: needs x (for the reason given)") == 3
    assert done.stdout.count("REQUIRE_ALL=1, but this was not run: for the reason given") == 6
    assert done.stdout.splitlines()[-1].startswith("==")
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_elsewhere_a_skip_is_a_skip_and_in_the_list(tmp_path: Path) -> None:
    done = run(tmp_path, SKIPS, require_all="0")
    assert done.returncode == 0, done.stdout
    _, head, rest = done.stdout.partition("Left out: 9 tests (REQUIRE_ALL=1 makes them fail)\n")
    assert head
    assert rest.startswith("     6 tests for the reason given\n     3 tests needs x (for the reason given)\n")
