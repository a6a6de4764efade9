"""smartserver.cli.upgrade: there is nothing to upgrade, which it says; what it is not for is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from stored import stored

from smartserver.cli.errors import CommandError
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


def test_it_says_what_it_is_not_for() -> None:
    said = " ".join(run("--help").output.split())
    assert "nothing to upgrade" in said
    assert "`brz upgrade --2a`" in said


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("absent", "is not there"),
        ("empty", "is not a repository of smartserver"),
        ("branch", "is not a repository of smartserver but a Bazaar repository"),
    ],
)
def test_what_is_no_repository(tmp_path: Path, place: str, why: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "branch" / ".bzr").mkdir(parents=True)
    result = run(str(tmp_path / place))
    assert isinstance(result.exception, CommandError)
    assert str(result.exception).endswith(why)


def test_a_url_is_refused() -> None:
    result = run("hpss://localhost/project")
    assert isinstance(result.exception, CommandError)
    assert "where the repository lies" in str(result.exception)
