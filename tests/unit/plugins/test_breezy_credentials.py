"""plugins.breezy.credentials: the section of authentication.conf for a server, and what the user is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from breezy import ui

from smartserver.plugins.breezy.credentials import BreezyCredentials

WHERE = "localhost:4155"

SECTIONS = """[all]
host = localhost
user = x
password = hpss_all

[web]
scheme = https
host = localhost
user = x
password = hpss_web

[secret]
scheme = hpss
host = localhost
port = 4157
user = x
password = secret

[other]
scheme = hpss
host = localhost
port = 4156
user = x
token = hpss_other

[tls]
scheme = hpss+tls
host = ::1
user = x
password = hpss_tls

[ours]
scheme = hpss
host = localhost
user = x
password = hpss_kept
"""
"""Sections of which three are for other servers: one has no scheme, one another, and one no token."""


class Asked(ui.SilentUIFactory):  # type: ignore[misc]  # Breezy is not typed.
    """A user who gives one answer."""

    def __init__(self, answer: str | None) -> None:
        super().__init__()
        self.answer = answer
        self.prompts: list[str] = []

    def get_password(self, prompt: str = "", **kwargs: str) -> str | None:
        self.prompts.append(prompt % kwargs)
        return self.answer


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BRZ_HOME", str(tmp_path))
    (tmp_path / "breezy").mkdir()
    made = tmp_path / "breezy" / "authentication.conf"
    made.write_text(SECTIONS)
    made.chmod(0o600)
    return made


@pytest.mark.parametrize(
    ("scheme", "where", "token"),
    [
        ("hpss", WHERE, "hpss_kept"),
        ("hpss", "localhost:4156", "hpss_other"),
        ("hpss+tls", "[::1]:4155", "hpss_tls"),
        ("hpss", "localhost:4157", ""),
        ("hpss+tls", WHERE, ""),
        ("hpss", "example.org:4155", ""),
    ],
)
def test_the_section_of_a_server(file: Path, scheme: str, where: str, token: str) -> None:
    assert BreezyCredentials(scheme, where).stored() == token
    assert file.read_text() == SECTIONS


def test_one_that_was_refused_is_given_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked("hpss_typed")
    monkeypatch.setattr(ui, "ui_factory", asked)
    found = BreezyCredentials("hpss", WHERE)
    assert found.ask() == "hpss_kept"
    assert asked.prompts == []
    found.reject()
    assert (found.stored(), found.ask()) == ("", "hpss_typed")


@pytest.mark.parametrize("user", [Asked(None), Asked(""), ui.SilentUIFactory()])
def test_nobody_knows_one(monkeypatch: pytest.MonkeyPatch, user: ui.UIFactory) -> None:
    """A program that uses Breezy as a library may have no user."""
    monkeypatch.setattr(ui, "ui_factory", user)
    assert BreezyCredentials("hpss", "example.org:4155").ask() == ""
