"""plugins.git.credentials: what git is asked for a token. Git itself is in `interop/test_git_tokens.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from smartserver.plugins.git.credentials import SILENT, GitCredentials

WHERE = "localhost:4155"
ABOUT = f"protocol=hpss+tls\nhost={WHERE}\n"


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
    found = GitCredentials("hpss+tls", WHERE, git)
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
