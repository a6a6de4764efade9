"""smartserver.plugins.git.credentials: what git is asked for a token, and what it is told of one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from smartserver.cli.git_remote_run import run_here
from smartserver.plugins.git.credentials import SILENT, GitCredentials

WHERE = "localhost:4155"
ABOUT = f"protocol=hpss\nhost={WHERE}\n"

KEEPER = """#!/bin/sh
cd "$(dirname "$0")"
echo "$1" >> log
case $1 in
get) test -f kept && cat kept ;;
store) cat > kept ;;
erase) rm -f kept ;;
esac
"""

ASKING = '#!/bin/sh\necho "$1" >> "$(dirname "$0")/asked"\necho hpss_typed\n'


class Git:
    """Answers `git credential fill` as a test says."""

    def __init__(self, *passwords: str) -> None:
        self.passwords = list(passwords)
        self.asked: list[tuple[str, bool, str]] = []

    def __call__(self, words: Sequence[str], variables: Mapping[str, str], said: bytes, *, quiet: bool) -> bytes:
        assert (variables == SILENT) is quiet
        self.asked.append((words[-1], quiet, said.decode()))
        password = self.passwords.pop(0) if words[-1] == "fill" else ""
        return f"{said.decode().strip()}\nusername=x\npassword={password}\n".encode() if password else b""


def test_a_password_that_is_no_token_is_not_given_and_stays() -> None:
    git = Git("secret", "hpss_a")
    found = GitCredentials("hpss", WHERE, git)
    assert found.stored() == ""
    found.reject()
    assert git.asked == [("fill", True, f"{ABOUT}\n")]
    assert found.ask() == "hpss_a"


@pytest.mark.parametrize("where", ["local\nhost=other:1", "a\x00b:1", "a\rb:1"])
def test_a_host_cannot_name_another_one(where: str) -> None:
    """The lines of git's protocol have no quotes (CVE-2020-5260)."""
    git = Git("hpss_a", "hpss_a")
    assert GitCredentials("hpss", where, git).ask() == ""
    assert git.asked == []


@pytest.mark.parametrize("scheme", ["hpss", "hpss+tls"])
def test_git_itself(tmp_path: Path, scheme: str) -> None:
    for name, content in (("helper", KEEPER), ("asking", ASKING)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ASKPASS": str(tmp_path / "asking"), "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"credential.{scheme}://{WHERE}.helper", "GIT_CONFIG_VALUE_0": str(tmp_path / "helper"),
    }  # fmt: skip
    run = partial(run_here, environment)
    first = GitCredentials(scheme, WHERE, run)
    assert first.stored() == ""
    assert not (tmp_path / "asked").exists()
    assert first.ask() == "hpss_typed"
    assert (tmp_path / "asked").read_text() == f"Password for '{scheme}://token@{WHERE}': \n"
    first.approve()
    second = GitCredentials(scheme, WHERE, run)
    assert second.stored() == "hpss_typed"
    second.reject()
    assert second.stored() == ""
    assert GitCredentials(scheme, "localhost:4156", run).stored() == ""
    assert (tmp_path / "log").read_text().split() == ["get", "get", "get", "store", "get", "erase", "get"]
