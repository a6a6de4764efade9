"""plugins.breezy.credentials: the section of authentication.conf for a server, and what the user is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from breezy import ui

from smartserver.plugins.breezy.credentials import BreezyCredentials

WHERE = "localhost:4155"

SECTIONS = """[other]
scheme = hpss
host = localhost
port = 4156
user = x
password = hpss_other

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


class Asked(ui.SilentUIFactory):  # type: ignore[misc]  # Breezy is not typed.
    """A user who gives one answer."""

    def __init__(self, answer: str | None) -> None:
        super().__init__()
        self.answer = answer
        self.prompts: list[str] = []

    def get_password(self, prompt: str = "", **kwargs: str) -> str | None:
        self.prompts.append(prompt % kwargs)
        return self.answer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the file."""
    monkeypatch.setenv("BRZ_HOME", str(tmp_path))
    folder = tmp_path / "breezy"
    folder.mkdir()
    return folder


def write(home: Path, content: str = SECTIONS) -> None:
    (home / "authentication.conf").write_text(content)
    (home / "authentication.conf").chmod(0o600)


@pytest.mark.parametrize(
    ("scheme", "where", "token"),
    [
        ("hpss", WHERE, "hpss_kept"),
        ("hpss", "localhost:4156", "hpss_other"),
        ("hpss+tls", "[::1]:4155", "hpss_tls"),
        ("hpss+tls", WHERE, ""),
        ("hpss", "example.org:4155", ""),
    ],
)
def test_the_section_of_a_server(home: Path, scheme: str, where: str, token: str) -> None:
    write(home)
    assert BreezyCredentials(scheme, where).stored() == token


def test_a_section_of_a_token(home: Path) -> None:
    write(home, "[ours]\nscheme = hpss\nhost = localhost\nuser = x\ntoken = hpss_kept\n")
    assert BreezyCredentials("hpss", WHERE).stored() == "hpss_kept"


OF_OTHERS = """[all]
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

"""


def test_a_section_that_does_not_name_the_scheme_is_for_other_servers(home: Path) -> None:
    write(home, OF_OTHERS + SECTIONS)
    assert BreezyCredentials("hpss", WHERE).stored() == "hpss_kept"
    assert BreezyCredentials("hpss+tls", WHERE).stored() == ""
    assert BreezyCredentials("hpss", "localhost:4157").stored() == ""
    assert (home / "authentication.conf").read_text() == OF_OTHERS + SECTIONS


@pytest.mark.parametrize(("answer", "token"), [("hpss_typed", "hpss_typed"), (None, ""), ("", "")])
def test_without_one_the_user_is_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, token: str
) -> None:
    asked = Asked(answer)
    monkeypatch.setattr(ui, "ui_factory", asked)
    found = BreezyCredentials("hpss", WHERE)
    assert found.stored() == ""
    assert found.ask() == token
    assert asked.prompts == [f"Token for hpss://{WHERE}"]
    found.approve()
    assert list(home.iterdir()) == []


def test_one_that_was_refused_is_given_no_more(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home)
    asked = Asked("hpss_typed")
    monkeypatch.setattr(ui, "ui_factory", asked)
    found = BreezyCredentials("hpss", WHERE)
    assert found.ask() == "hpss_kept"
    assert asked.prompts == []
    found.reject()
    assert (found.stored(), found.ask()) == ("", "hpss_typed")


def test_a_program_without_a_user_is_not_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "ui_factory", ui.SilentUIFactory())
    assert BreezyCredentials("hpss", WHERE).ask() == ""
