"""smartserver.cli.upgrade: there is nothing to upgrade, which it says; what it is not for is refused."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result
from stored import stored

from smartserver.cli.main import group


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["upgrade", *arguments])


def test_there_is_nothing_to_upgrade(tmp_path: Path) -> None:
    stored(tmp_path / "project")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = run(str(tmp_path / "project"))
    assert result.output == f"{tmp_path}/project: smartserver repository 1, the newest format: nothing to upgrade\n"
    assert result.exit_code == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
