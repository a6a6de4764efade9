"""smartserver.cli.user: a name, or a number where there is none."""

from __future__ import annotations

import getpass
import os

import pytest

from smartserver.cli.user import user


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no user")])
def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert user() == str(os.getuid())
