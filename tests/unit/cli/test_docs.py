"""smartserver.cli.docs: writes the pages, and says which are stale."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from smartserver.cli.errors import CommandError
from smartserver.cli.main import group
from smartserver.cli.reference import pages


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(group, ["docs", *options, "--folder", str(folder)])


def test_written_pages_are_fresh(tmp_path: Path) -> None:
    assert run(tmp_path, "--write").exit_code == 0
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == pages()
    assert run(tmp_path).exit_code == 0
    assert run(tmp_path, "--check").exit_code == 0


@pytest.mark.parametrize("option", ["--write", "--check"])
def test_outside_a_checkout_one_line_says_what_it_needs(tmp_path: Path, option: str) -> None:
    command = [sys.executable, "-m", "smartserver.cli.main", "docs", option]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "smartserver: doc/reference is not a folder: this command needs a checkout of smartserver, and to run in its "
        "top folder\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_stale_and_missing_pages_are_named_and_not_touched(tmp_path: Path) -> None:
    run(tmp_path, "--write")
    (tmp_path / "verbs.md").write_text("old")
    (tmp_path / "cli.md").unlink()
    result = run(tmp_path)
    assert isinstance(result.exception, CommandError)
    said = str(result.exception)
    assert f"stale: {tmp_path / 'verbs.md'}, {tmp_path / 'cli.md'};" in said
    assert "errors.md" not in said
    assert (tmp_path / "verbs.md").read_text() == "old"
