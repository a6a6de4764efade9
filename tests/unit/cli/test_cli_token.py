"""smartserver.cli.token: tokens are made, listed and revoked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from smartserver.cli.errors import CommandError
from smartserver.cli.main import group
from smartserver.server.tokens import TokenFile, token_path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text('[[rules]]\nwho = ["ci"]\npath = "p/**"\nmay = "create"\n')
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(group, ["token", *map(str, arguments)])


def failure(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, CommandError), result
    assert result.stdout == ""
    return str(result.exception)


def test_a_token_is_all_that_is_printed(file: Path) -> None:
    result = run("create", file, "ci")
    token = result.stdout.removesuffix("\n")
    found = TokenFile(token_path(file)).content.find(token)
    assert found is not None
    said = f"token {found.text.id} of ci, valid until it is revoked; it is not shown again:\n"
    assert (result.exit_code, result.stderr) == (0, said)
    assert run("create", file, "ben").stderr.startswith(f"{file} has no rule that gives ben anything\n")


def test_tokens_are_listed_without_what_they_are(file: Path) -> None:
    assert run("list", file).stdout == ""
    made = [
        run("create", file, "ci").stdout.strip(),
        run("create", file, "ci", "--path", "p/x", "--read-only", "--expires", "12h").stdout.strip(),
    ]
    before = time.time()
    known = TokenFile(token_path(file)).content.known
    assert known[1].text.expires is not None
    assert abs(known[1].text.expires - before - 12 * 3600) < 3600
    result = run("list", file)
    first, second = result.stdout.splitlines()
    assert first.startswith(f"{known[0].text.id}  ci  ")
    assert first.endswith("  until it is revoked")
    assert "  until " in second
    assert second.endswith("  path p/x  read only")
    for token, each in zip(made, known, strict=True):
        assert token[5:] not in result.output
        assert each.text.sha256 not in result.output


def test_one_that_expired_is_listed_as_such(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", file, "ci", "--expires", "1d")
    later = time.time() + 2 * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert "  expired " in run("list", file).stdout


def test_a_token_is_revoked(file: Path) -> None:
    token = run("create", file, "ci").stdout.strip()
    found = TokenFile(token_path(file)).content.find(token)
    assert found is not None
    result = run("revoke", file, found.text.id)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"token {found.text.id} of ci is revoked\n")
    assert TokenFile(token_path(file)).content.find(token) is None
    assert failure("revoke", file, found.text.id) == f"{token_path(file)}: there is no token '{found.text.id}'"


@pytest.mark.parametrize("expires", ["", "90", "0d", "-1d", "1.5d", "90days", "1234567d"])
def test_a_time_that_is_none(file: Path, expires: str) -> None:
    assert failure("create", file, "ci", "--expires", expires).startswith(f"--expires {expires!r}: expected a number")
    assert not token_path(file).exists()


def test_what_makes_no_token(file: Path) -> None:
    assert "'a b' is not a valid user name" in failure("create", file, "a b")
    assert "path = '/p': a slash at its start" in failure("create", file, "ci", "--path", "/p")
    assert failure("create", file.with_name("none"), "ci").endswith("No such file or directory")
    token_path(file).write_text("{")
    assert failure("list", file).startswith(f"{token_path(file)}: ")
