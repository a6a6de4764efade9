"""smartserver.cli.docs: writes the pages, and says which are stale."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from smartserver.cli.main import group
from smartserver.cli.reference import pages


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(group, ["docs", *options, "--folder", str(folder)])


def test_written_pages_are_fresh(tmp_path: Path) -> None:
    assert run(tmp_path, "--write").exit_code == 0
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == pages()
    assert run(tmp_path).exit_code == 0
    assert run(tmp_path, "--check").exit_code == 0
