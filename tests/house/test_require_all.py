"""tests/conftest.py: with REQUIRE_ALL=1 nothing is skipped in silence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(folder: Path, source: str, require_all: str) -> subprocess.CompletedProcess[str]:
    for name in ("conftest.py", "needs.py", "sources.py"):
        shutil.copy(TESTS / name, folder)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    (folder / "test_it.py").write_text(f"import pytest\n\n{source}\n\ndef test_other(): pass\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload"],
        cwd=folder,
        env=os.environ | {"REQUIRE_ALL": require_all},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS)
def test_a_skip_is_a_failure_with_its_reason(tmp_path: Path, source: str) -> None:
    done = run(tmp_path, source, require_all="1")
    assert done.returncode in (1, 2), done.stdout
    assert "for the reason given" in done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS)
def test_elsewhere_a_skip_is_a_skip_and_in_the_list(tmp_path: Path, source: str) -> None:
    done = run(tmp_path, source, require_all="0")
    assert done.returncode in (0, 5), done.stdout  # 5: the file that skipped was the only one.
    assert "1 skipped" in done.stdout
    assert re.search(r"^Left out: 1 tests .*\n +1 test .*for the reason given", done.stdout, re.MULTILINE)


def test_expected_failure_is_no_skip(tmp_path: Path) -> None:
    done = run(tmp_path, "@pytest.mark.xfail(strict=True)\ndef test_x(): assert 0", require_all="1")
    assert done.returncode == 0, done.stdout
    assert "1 xfailed" in done.stdout
