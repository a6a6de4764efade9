"""smartserver.cli.setup: what is written into git's configuration, in a home of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from smartserver.cli.errors import CommandError
from smartserver.cli.main import group
from smartserver.cli.setup import PROGRAM

pytestmark = pytest.mark.interop


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def allowed() -> str:
    done = subprocess.run(
        ["git", "config", "--global", "--get-all", "protocol.hpss.allow"], capture_output=True, text=True, check=False
    )
    return done.stdout


def test_git_learns_the_protocol_once(home: Path) -> None:
    for _ in range(2):
        result = CliRunner().invoke(group, ["setup", "git"])
        assert (result.exit_code, result.output) == (0, "protocol.hpss.allow = always\n")
    assert allowed() == "always\n"
    assert (home / ".gitconfig").is_file()


def test_what_is_configured_already_stays(home: Path) -> None:
    (home / ".gitconfig").write_text('[user]\n\tname = A\n[protocol "hpss"]\n\tallow = never\n')
    assert CliRunner().invoke(group, ["setup", "git"]).exit_code == 0
    assert allowed() == "always\n"
    assert "name = A" in (home / ".gitconfig").read_text()


def test_without_git(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    result = CliRunner().invoke(group, ["setup", "git"])
    assert isinstance(result.exception, CommandError)
    assert str(result.exception) == "git is not on PATH: install it first"


def test_a_configuration_git_cannot_write(home: Path) -> None:
    (home / ".gitconfig").write_text("[broken\n")
    result = CliRunner().invoke(group, ["setup", "git"])
    assert isinstance(result.exception, CommandError)
    assert str(result.exception).startswith("git config --global: ")
    assert "\n" not in str(result.exception)


def test_a_program_git_would_not_find_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    (home / "bin").mkdir()
    (home / "bin" / "git").symlink_to(git)
    monkeypatch.setenv("PATH", str(home / "bin"))
    result = CliRunner().invoke(group, ["setup", "git"])
    assert isinstance(result.exception, CommandError)
    assert str(result.exception).startswith(f"{PROGRAM} is not on PATH")
